"""Asked, kept, and scored with the cluster that the change makes."""

import json
import re
from pathlib import Path
from shutil import copytree

import pytest

from lostflops.core.estimate import Estimate
from lostflops.testing import Straggler, SyntheticCluster, store

SLOW = (Straggler(1, "slow_kernels", factor=1.5),)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rank of `slow` has slower kernels; in `even` it has not."""
    folder = tmp_path_factory.mktemp("made")
    for name, stragglers in (("slow", SLOW), ("even", ())):
        store(SyntheticCluster(ranks=3, stragglers=stragglers).generate(), folder / name)
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    copytree(made, tmp_path / "runs")
    return tmp_path / "runs"


def test_a_prediction_comes_true(runs: Path, lostflops) -> None:
    asked = lostflops("whatif", runs / "slow", "--change", "straggler=removed", "--json")
    told = json.loads(asked.out)
    assert told["schema"] == "lostflops.whatif/2"
    assert told["baseline"]["replay_error"] == pytest.approx(0, abs=0.001)
    low, high = told["interval"]
    assert low <= told["predicted_ns"] <= high
    assert sum(line["before_ns"] for line in told["lines"]) == pytest.approx(told["baseline"]["measured_ns"], abs=20)
    assert sum(line["after_ns"] for line in told["lines"]) == pytest.approx(told["predicted_ns"], abs=20)
    assert told["lines"][0]["delta"] < 0

    scored = json.loads(lostflops("score", told["prediction_id"], "--with", runs / "even", "--json").out)
    assert scored["prediction_id"] == told["prediction_id"]
    assert abs(scored["score"]["error"]) < 0.02
    assert scored["score"]["inside"]
    assert scored["score"]["sign_right"]
    listed = json.loads(lostflops("score", "--list", runs / "slow", "--json").out)
    assert [row["inside"] for row in listed["predictions"]] == [True]


def test_people_see_what_to_do(runs: Path, lostflops) -> None:
    told = lostflops("whatif", runs / "slow", "--change", "straggler=removed", "--change", "network.bandwidth=2x").out
    text = " ".join(told.split())
    assert re.search(
        r"straggler=removed, network\.bandwidth=2x saves 3\d% of the step \(\d\d to 3\d%\): "
        r"from 1\.50 ms to",
        text,
    )
    assert "cost and risk" in text
    assert "how to apply it" in text
    assert "replay error" in text
    assert "Next: lostflops score p-" in text
    assert f"Or: lostflops open {runs / 'slow'}" in text
    scored = lostflops("score", next((runs / "slow" / "predictions").iterdir()).stem, "--with", runs / "even").out
    assert "Predicted" in scored
    assert f"Next: lostflops diff {runs / 'slow'} {runs / 'even'}" in scored
    assert f"Or: lostflops score --list {runs / 'slow'}" in scored


def test_all_are_ranked_and_none_is_kept(runs: Path, lostflops) -> None:
    told = json.loads(lostflops("whatif", runs / "slow", "--all", "--json").out)
    assert told["schema"] == "lostflops.whatif_all/2"
    order = [(not Estimate(**row["saving"]).is_gain, -row["saving"]["value"]) for row in told["changes"]]
    assert order == sorted(order), "certain savings first, each group by size"
    assert "straggler=removed" in {row["change"] for row in told["changes"] if row["saving"]["value"] > 0.1}
    assert all(row["reason"] for row in told["not_applicable"])
    assert not (runs / "slow" / "predictions").exists()
    assert "--change" in lostflops("whatif", runs / "slow", "--all").out


def test_the_list_tells_what_applies(runs: Path, lostflops) -> None:
    rows = {
        row["name"]: row for row in json.loads(lostflops("whatif", runs / "slow", "--list", "--json").out)["changes"]
    }
    assert rows["straggler"]["applies"] is True
    assert rows["data"]["applies"] is False
    assert rows["data"]["here"].startswith("no: ")
    assert rows["device"]["applies"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give exactly one of --change NAME=VALUE, --list, --all and --tune bucket_mb"),
        (("--all", "--list"), "give exactly one of"),
        (("--change", "stragler=removed"), "Did you mean straggler"),
        (("--change", "straggler"), "not of the form NAME=VALUE"),
        (("--change", "data=fixed"), "data=fixed does not apply: "),
        (("--change", "network.bandwidth=fast"), "network.bandwidth=fast"),
        (
            ("--all", "--calibration", "x.json", "--topology", "dgx-h100"),
            "--calibration and --topology cannot be combined",
        ),
    ],
)
def test_what_cannot_be_asked(runs: Path, lostflops, words: tuple[str, ...], message: str) -> None:
    told = lostflops("whatif", runs / "slow", *words)
    assert told.code == 2
    assert message in told.err


@pytest.mark.parametrize("words", [(), ("p-00000000",), ("--with", "x"), ("p-00000000", "--list", "x")])
def test_what_cannot_be_scored(lostflops, words: tuple[str, ...]) -> None:
    told = lostflops("score", *words)
    assert told.code == 2
    assert "give the id of a prediction and --with RUN, or only --list RUN" in told.err


def test_an_unknown_prediction(runs: Path, lostflops) -> None:
    told = lostflops("score", "p-00000000", "--with", runs / "even")
    assert told.code == 2
    assert "--from RUN" in told.err


def test_the_list_of_predictions_leads_to_the_next_one(runs: Path, lostflops) -> None:
    assert f"Next: lostflops whatif {runs / 'slow'} --all" in lostflops("score", "--list", runs / "slow").out
    asked = json.loads(lostflops("whatif", runs / "slow", "--change", "straggler=removed", "--json").out)
    kept = asked["prediction_id"]
    assert f"Next: lostflops score {kept} --with NEW_RUN" in lostflops("score", "--list", runs / "slow").out
