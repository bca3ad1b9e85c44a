import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lostflops

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


def test_the_public_names_are_frozen() -> None:
    assert set(lostflops.__all__) == {
        *("Finding", "LostflopsError", "Result", "Run", "TrainingRun", "__version__"),
        *("open", "ingest", "diff", "diff_page", "gate", "scale", "score", "hang", "estimate", "doctor", "verify"),
        *("ask_fleet", "add_to_fleet"),
        *("record", "step", "mark", "trace_handler"),
    }
    assert dir(lostflops) == sorted(lostflops.__all__)


@pytest.mark.parametrize("name", lostflops.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(lostflops, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'levitate'"):
        lostflops.levitate  # noqa: B018


def test_ingest_is_a_package_that_can_be_called(tmp_path: Path) -> None:
    import lostflops.ingest

    assert lostflops.ingest.__name__ == "lostflops.ingest"
    assert callable(lostflops.ingest.ingest)
    with pytest.raises(lostflops.LostflopsError):
        lostflops.ingest(tmp_path / "nothing", tmp_path / "run")


def test_import_is_light() -> None:
    heavy = {"numpy", "scipy", "duckdb", "msgspec", "rich", "typer"}
    script = f"import lostflops, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}


def test_dependencies_are_frozen() -> None:
    assert names(PROJECT["dependencies"]) == {"msgspec", "isal", "numpy", "scipy", "duckdb", "rich", "typer"}


def test_all_is_the_union_of_the_extras_without_torch() -> None:
    extras = dict(PROJECT["optional-dependencies"])
    everything = extras.pop("all")
    assert set(everything) == {requirement for extra in extras.values() for requirement in extra}
    assert "torch" not in names(everything) | names(PROJECT["dependencies"])
