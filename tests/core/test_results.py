import dataclasses
import json

import pytest

from lostflops.core.estimate import Estimate, Kind, Strength
from lostflops.core.results import (
    Evidence,
    Field,
    Finding,
    Findings,
    Line,
    Lines,
    Pair,
    Pairs,
    Prediction,
    Result,
    Table,
)

PREDICTION = Prediction("p1", "sync=removed", 100_000_000, 90_000_000, 80_000_000, 95_000_000, 0.02)
SAVING = Estimate.measured(0.1, 0.05, "timed steps")
FINDING = Finding(
    id="sync:0,1",
    level="found",
    cause="sync",
    what="The host waits for the device",
    lost_ns=10,
    lost_share=0.1,
    rank_hours=4.8,
    usd=None,
    ranks=(0, 1),
    evidence=(Evidence("12 calls", events=((0, 7),), sources=("train.py(3): step",)),),
    strength=Strength.STRONG,
    probability=None,
    certain_if="stacks are recorded",
    fix="log every 100 steps",
    lines={"idle.sync": 10},
    saving=SAVING,
    prediction=PREDICTION,
)


def test_json_is_plain_and_keyed_by_block() -> None:
    result = Result(
        name="ledger",
        title="Ledger",
        verdict="It closes.",
        blocks=(
            Pairs("window", "", (Pair("wall", 100, "ns"),)),
            Table("ranks", "", (Field("rank"), Field("busy", "ns")), ((0, 60), (1, None))),
            Lines("lines", "", (Line("idle", 40, 0.4, (Line("idle.data", 40, 0.4),)),), 40),
            Findings("findings", "", (FINDING,)),
        ),
        notes=("one",),
        next_command="lostflops info run",
    )
    data = json.loads(json.dumps(result.to_json()))
    finding = data.pop("findings")[0]
    part = {"line": "idle.data", "ns": 40, "share": 0.4, "parts": []}
    assert data == {
        "schema": "lostflops.ledger/1",
        "title": "Ledger",
        "verdict": "It closes.",
        "notes": ["one"],
        "window": {"wall": 100},
        "ranks": [{"rank": 0, "busy": 60}, {"rank": 1, "busy": None}],
        "lines": {"total_ns": 40, "lines": [{"line": "idle", "ns": 40, "share": 0.4, "parts": [part]}]},
    }
    assert set(finding) >= {
        "cause",
        "lost_ns",
        "lost_share",
        "evidence",
        "ranks",
        "strength",
        "probability",
        "fix",
        "prediction",
    }
    assert finding["evidence"][0]["events"] == [[0, 7]]
    assert finding["prediction"]["predicted_ns"] == 90_000_000
    assert finding["saving"] == {
        "value": 0.1,
        "low": 0.05,
        "high": 0.15000000000000002,
        "kind": "measured",
        "source": "timed steps",
    }


@pytest.mark.parametrize("kind", [Result, Table, Pairs, Lines, Findings, Finding, Prediction, Evidence, Line, Pair])
def test_results_cannot_be_changed(kind: type) -> None:
    assert kind.__dataclass_params__.frozen


@pytest.mark.parametrize(
    "broken",
    [
        lambda: Table("t", "", (Field("a"), Field("b")), ((1,),)),
        lambda: Result("x", "", "", (Pairs("same", "", ()), Pairs("same", "", ()))),
        lambda: Result("x", "", "", (Pairs("verdict", "", ()),)),
        lambda: dataclasses.replace(FINDING, level="suspected"),
        lambda: dataclasses.replace(FINDING, saving=Estimate.measured(0.1, 0.2, "timed steps")),
        lambda: dataclasses.replace(FINDING, saving=Estimate(0.1, None, None, Kind.GUESS, "a rule of thumb")),
        lambda: dataclasses.replace(SAVING, low=0.11),
        lambda: dataclasses.replace(SAVING, low=None),
        lambda: dataclasses.replace(SAVING, kind=Kind.GUESS),
        lambda: dataclasses.replace(SAVING, kind=Kind.BOUND),
    ],
)
def test_invariants(broken) -> None:
    with pytest.raises(AssertionError):
        broken()


def test_step_times_are_shown_if_they_are_for_the_same_work() -> None:
    assert FINDING.step_times == "from 100 ms to 90.0 ms"
    assert dataclasses.replace(FINDING, saving=Estimate.measured(0.4, 0.1, "twice the work")).step_times == ""
    assert dataclasses.replace(FINDING, prediction=None).step_times == ""
    assert dataclasses.replace(FINDING, saving=Estimate.bound(0.1, "its time")).step_times == ""
