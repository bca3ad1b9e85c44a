import json
from pathlib import Path

import pytest

from lostflops.cli.main import main
from lostflops.predict.scaling.own_times import OwnTimes
from lostflops.testing import Network, SyntheticCluster, store


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = SyntheticCluster(ranks=4, ranks_per_host=1, network=Network(inter_gbs=5)).generate()
    return store(made, tmp_path_factory.mktemp("scale") / "run", host_names=True)


def called(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_ranks_from_the_run_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("scale", run, "--ranks", "8,4", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "lostflops.scale/1"
    assert [row["ranks"] for row in told["ranks"]] == [4, 8]
    assert told["ranks"][1]["algorithm"] == "ring"
    assert told["replay"]["error"] < 1e-6
    assert told["collectives"][0]["at"]["8"] > told["collectives"][0]["at"]["4"]


def test_people_see_a_table_and_the_next_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("scale", run, "--ranks", "16", "--strong") == 0
    told = capsys.readouterr().out
    assert "Strong scaling" in told
    assert "Only compute is divided by the ranks" in " ".join(told.split())
    assert "Next: lostflops comm" in told


def test_a_plot_is_written(run: Path, tmp_path: Path) -> None:
    assert called("scale", run, "--ranks", "16", "--plot", tmp_path / "scale.svg") == 0
    assert (tmp_path / "scale.svg").read_text().startswith("<svg")


def test_a_described_cluster(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("scale", run, "--ranks", "64", "--topology", "dgx-h100", "--ranks-per-host", "4", "--json") == 0
    told = json.loads(capsys.readouterr().out)["ranks"]
    assert told[-1]["hosts"] == 16
    assert "dgx-h100" in told[-1]["source"]


def test_a_topology_tells_the_ranks_of_a_host_in_other_jobs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four ranks on four hosts were recorded; 64 are planned on machines of eight devices."""
    assert called("scale", run, "--ranks", "64", "--topology", "dgx-h100", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["ranks"] for row in told["ranks"]] == [4, 64]
    assert told["ranks"][-1]["hosts"] == 8
    assert told["ranks"][0]["algorithm"] == "measured"
    assert told["ranks"][0]["step_ns"] == told["replay"]["measured_ns"]


def test_one_of_calibration_and_topology(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("scale", run, "--ranks", "64", "--topology", "dgx-h100", "--calibration", "x.json") == 2
    assert "--calibration and --topology cannot be combined" in capsys.readouterr().err


def test_nccls_model_says_nothing_of_gloo(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = OwnTimes.of
    monkeypatch.setattr(OwnTimes, "of", lambda timelines, group, _: made(timelines, group, "gloo"))
    assert called("scale", run, "--ranks", "64", "--topology", "dgx-h100") == 3
    assert "the run used gloo" in capsys.readouterr().err


def test_a_network_that_nothing_tells_of(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("scale", run, "--ranks", "8", "--ranks-per-host", "4") == 3
    assert "--calibration FILE" in capsys.readouterr().err


@pytest.mark.parametrize("ranks", ["", "8,x", "0", "4"])
def test_ranks_that_ask_nothing(run: Path, capsys: pytest.CaptureFixture[str], ranks: str) -> None:
    assert called("scale", run, "--ranks", ranks) == 2
    assert "--ranks" in capsys.readouterr().err
