"""The examples of the page about the Python API run, one after the other, on the demo run."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lostflops.api import TrainingRun
from lostflops.testing import store
from lostflops.testing.demo import demo_cluster

PAGE = (Path(__file__).parent.parent / "docs" / "reference" / "python.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    store(demo_cluster(4).generate(), tmp_path / "run")
    store(replace(demo_cluster(4), stragglers=()).generate(), tmp_path / "new-run")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "python.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "straggler:2" in printed
    assert "has no rank 99" in printed
    assert names["exit_code"] in (0, 3)


def test_every_method_is_on_the_page() -> None:
    methods = {name for name in vars(TrainingRun) if not name.startswith("_")} - {"folder"}
    assert methods <= set(re.findall(r"run\.(\w+)\(", PAGE))
