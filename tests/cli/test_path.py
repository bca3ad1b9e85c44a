import json
from pathlib import Path

import pytest

from lostflops.cli.main import main
from lostflops.testing import Straggler, SyntheticCluster, store


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = SyntheticCluster(ranks=4, stragglers=(Straggler(2, "slow_kernels", factor=1.5),)).generate()
    return store(made, tmp_path_factory.mktemp("path") / "run")


def called(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_programs_read_the_path(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("path", run, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "lostflops.path/1"
    assert told["ranks"][0]["rank"] == 2
    held = sum(line["ns"] for line in told["lines"]["lines"])
    assert held == told["lines"]["total_ns"]
    assert held / told["path"]["steps"] == pytest.approx(told["path"]["step_ns"], abs=1)


def test_people_see_the_rank_and_the_next_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("path", run, "--top", "3") == 0
    told = capsys.readouterr().out
    assert "rank 2 accounts for" in " ".join(told.split())
    assert f"Next: lostflops whatif {run} --all" in told


def test_a_step_that_was_not_recorded(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("path", run, "--step", "999") == 2
    assert "step 999 was not recorded" in capsys.readouterr().err
