"""Answers on a graph of two ranks: each step computes 80, then exchanges for 20."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.core.errors import NotApplicable, UnknownCost, UsageError
from lostflops.core.estimate import Estimate
from lostflops.core.units import format_interval
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif.answer import answer
from lostflops.predict.whatif.baseline import Baseline, baseline
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.changes import CHANGES as KNOWN
from lostflops.predict.whatif.interval import BETWEEN_RUNS
from lostflops.predict.whatif.predictions import load_predictions
from lostflops.predict.whatif.ranking import listing, ranking
from lostflops.predict.whatif.whatif import tabulate_answer, whatif
from lostflops.store.run import Run
from made_whatif import CHANGES, LARGER_STEPS, STEP, change, disk_run, made, of
from memory_run import MemoryRun

Start = Callable[..., Baseline]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return disk_run(tmp_path_factory.mktemp("whatif") / "run")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """The baseline of a run whose steps took so long."""
    with MemoryRun() as run:
        yield lambda *measured: baseline(run, build=of(made(measured or (STEP, STEP, STEP))))


def test_nothing_changed_is_what_was_measured(start: Start) -> None:
    found = answer(start(103, 99, 101), (), CHANGES)
    assert (found.predicted, found.gain) == (101, 0)
    assert found.low < 101 < found.high


def test_the_level_is_that_of_the_measurement(start: Start) -> None:
    """Replayed 100 becomes 90; measured was 104, so a step would take 93.6."""
    found = answer(start(104, 104, 104), [("network", "2x")], CHANGES)
    assert found.predicted == pytest.approx(93.6)
    assert found.gain == pytest.approx(0.1)
    assert found.baseline.error == pytest.approx(100 / 104 - 1)


def test_changes_compose_in_order(start: Start) -> None:
    found = answer(start(), [("network", "2x"), ("compute", "2x")], CHANGES)
    assert found.predicted == 50
    assert [one.moved for one in found.applied] == [-10, -40]


def test_the_interval_holds_all_that_can_be_wrong(start: Start) -> None:
    """The replay is right and steps do not differ: half of the 10 that the network gains, and what runs differ by."""
    found = answer(start(), [("network", "2x")], CHANGES)
    half = np.hypot(0.5 * 10, BETWEEN_RUNS * 90)
    assert (found.low, found.high) == pytest.approx((90 - half, 90 + half))
    assert found.saving.is_gain
    assert not answer(start(), [("network", "1.1x")], CHANGES).saving.is_gain


def test_the_interval_holds_what_a_change_doubts_beside_its_effect(start: Start) -> None:
    """A change that moves nothing and may be off by 30 ns."""
    off = Change(
        name="off",
        form="off=on",
        about="",
        cost="",
        how=str,
        apply=lambda graph, value, facts: Edited(graph=graph, doubt=0.5, off=30.0),
    )
    found = answer(start(104, 104, 104), [("off", "on")], (off,))
    assert found.doubts.changes == pytest.approx(30 * 1.04)
    assert found.predicted == 104


@settings(max_examples=50, deadline=None)
@given(
    factors=st.lists(st.tuples(st.sampled_from(("network", "compute")), st.floats(0.05, 20)), max_size=3),
    steps=st.lists(st.integers(90, 110), min_size=1, max_size=5),
)
def test_the_interval_holds_the_prediction(start: Start, factors: list[tuple[str, float]], steps: list[int]) -> None:
    found = answer(start(*steps), [(name, f"{factor}x") for name, factor in factors], CHANGES)
    assert 0 <= found.low <= found.predicted <= found.high
    assert found.saving.kind == "replayed"
    assert found.predicted == pytest.approx(found.baseline.measured + sum(one.moved for one in found.applied))


def test_how_steps_differ_widens_the_next_step_and_not_the_saving(start: Start) -> None:
    """Half of what a step computes goes, in each step alike: steps of 90 to 110 take part in both replays."""
    found = answer(start(90, 110, 95, 105, 100), [("compute", "2x")], CHANGES)
    low, high = found.saving.ends
    assert found.spread < 0.1 * found.doubts.steps
    assert high - low < (found.high - found.low) / found.baseline.measured


def test_a_replay_that_misses_is_said_or_refused(folder: Path) -> None:
    with Run.open(folder) as run:
        told = whatif(run, [("compute", "2x")], keep=False, build=of(made((110, 110))), known=CHANGES)
        assert told.verdict.startswith("Uncertain: the replay differs from the run by 9.1%. ")
        with pytest.raises(
            UnknownCost, match=r"inconclusive: replayed without changes, a step takes 50\.0% less than measured"
        ):
            whatif(run, [("compute", "2x")], keep=False, build=of(made((200, 200))), known=CHANGES)


def test_what_does_not_apply_says_why(start: Start) -> None:
    with pytest.raises(NotApplicable, match="never=on does not apply: no loader was recorded"):
        answer(start(), [("never", "on")], CHANGES)


def test_a_change_that_makes_nonsense_gives_no_number(start: Start) -> None:
    def apply(graph: TaskGraph, *_: object) -> Edited:
        return Edited(graph=retime_graph(graph, duration=-graph.tasks.duration), doubt=0)

    with pytest.raises(AssertionError, match="negative duration"):
        answer(start(), [("bad", "on")], (change("bad", apply),))


def test_names_that_are_nearly_right(start: Start) -> None:
    with pytest.raises(UsageError, match=r"no change is called 'nettwork'. Did you mean network\?.*--list"):
        answer(start(), [("nettwork", "2x")], CHANGES)


def test_json_is_the_contract(folder: Path) -> None:
    with Run.open(folder) as run:
        told = whatif(run, [("network", "2x")], build=of(made()), known=CHANGES).to_json()
        kept = [prediction.id for prediction in load_predictions(run.path)]
    assert told["schema"] == "lostflops.whatif/2"
    assert {"measured_ns": 100, "replayed_ns": 100, "replay_error": 0.0}.items() <= told["baseline"].items()
    (change,) = told["changes"]
    assert (change["name"], change["value"], change["how"]) == ("network", "2x", "network 2x")
    assert (change["cost"], change["notes"], change["moved_ns"]) == ("buy a network", ["bytes stay"], -10)
    assert change["extra"] == {"factor": 0.5}
    assert (told["predicted_ns"], told["saving"]["value"]) == (90, pytest.approx(0.1))
    assert told["interval"] == [85, 95]
    assert told["prediction_id"] in kept
    assert told["lines"] == [
        {"name": "comm.transfer", "before_ns": 20, "after_ns": 10, "delta": -10},
        {"name": "compute", "before_ns": 80, "after_ns": 80, "delta": 0},
    ]


def test_one_step_is_noted(folder: Path) -> None:
    with Run.open(folder) as run:
        told = whatif(run, [("compute", "2x")], keep=False, build=of(made((100,))), known=CHANGES)
    assert any("Only one step was recorded" in note for note in told.notes)


def test_all_changes_by_gain(start: Start) -> None:
    result, best = ranking(start(), CHANGES)
    told = result.to_json()
    assert [row["change"] for row in told["changes"]] == ["compute=2x", "network=2x", "network=1x"]
    assert [row["saving"]["value"] for row in told["changes"]] == pytest.approx([0.4, 0.1, 0])
    assert told["not_applicable"] == [
        {"change": "never", "reason": "no loader was recorded", "changes": [{"name": "never", "value": "on"}]}
    ]
    assert told["hardware"] == []
    assert "hardware" not in {block.name for block in result.blocks}
    assert best == "compute=2x"


def test_larger_steps_are_not_taken_for_slower_ones(start: Start) -> None:
    """A step computes 160 instead of 80, and exchanges once."""
    result, best = ranking(start(), (*LARGER_STEPS, *CHANGES))
    note = "twice=on: one step has the batches of 2 recorded steps and takes 180 ns; the table shows the time per"
    assert f"{note} recorded step." in result.notes
    rows = {row["change"]: row for row in result.to_json()["changes"]}
    assert rows["twice=on"]["saving"]["value"] == pytest.approx(0.1)
    assert [rows["twice=on"][key] for key in ("predicted_ns", "per_step_ns", "work")] == [180, 90, 2]
    assert best == "compute=2x"
    assert ranking(start(), LARGER_STEPS)[1] == ""


def test_larger_steps_are_compared_by_their_work(folder: Path) -> None:
    with Run.open(folder) as run:
        told = whatif(run, [("twice", "on")], build=of(made()), known=LARGER_STEPS, keep=False)
    assert told.verdict.startswith("twice=on saves 10% of the step")
    assert told.verdict.endswith("from 100 ns to 180 ns for the work of 2 recorded steps.")
    assert told.to_json()["saving"]["value"] == pytest.approx(0.1)


def test_a_bound_is_not_what_to_do(start: Start) -> None:
    network, compute, *_ = CHANGES
    result, best = ranking(start(), (network, replace(compute, is_bound=True)))
    assert result.to_json()["changes"][0]["change"] == "compute=2x"
    assert best == "network=2x"
    assert result.verdict.startswith("Apart from upper limits and larger batches, network=2x saves the most")
    assert "compute=2x is an upper limit, not a setting." in result.notes
    alone, best = ranking(start(), (replace(compute, is_bound=True),))
    assert best == ""
    assert alone.verdict == "None of 0 settings clearly shortens the step."


def test_an_unclear_effect_shows_its_range(folder: Path) -> None:
    with Run.open(folder) as run:
        unclear = [
            whatif(run, [("network", value)], build=of(made()), known=CHANGES, keep=False) for value in ("1.1x", "0.9x")
        ]
    for one in unclear:
        saving = Estimate(**one.to_json()["saving"])
        assert (saving.kind, saving.is_gain) == ("replayed", False)
        interval = format_interval(*saving.ends)
        assert f" has no clear effect ({interval} of the step): from" in one.verdict


def test_a_verdict_on_a_limit_says_at_most(folder: Path) -> None:
    """Half of the 10 ns that a faster network gains are certain; of the 1 ns of a slightly faster one, nothing is."""
    limit = (replace(CHANGES[0], is_bound=True),)
    with Run.open(folder) as run:
        clear, unclear = (
            whatif(run, [("network", value)], build=of(made()), known=limit, keep=False) for value in ("2x", "1.1x")
        )
    assert clear.verdict.startswith("network=2x saves at most 10% of the step: from")
    assert {"low": 0, "kind": "bound"}.items() <= clear.to_json()["saving"].items()
    assert unclear.verdict.startswith("network=1.1x has no clear effect (")


def test_savings_of_single_steps_do_not_widen_the_interval_if_steps_mix(start: Start) -> None:
    """Each step gets its work of 50 ns earlier, in step 2 also that of the others: 10% of the mean in any case."""
    levels = (90, 110, 95, 105, 100)

    def apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
        del facts
        duration = graph.tasks.duration * np.where(graph.tasks.step == 2, 1, 3) // 2
        return Edited(graph=retime_graph(graph, duration=duration), doubt=0.0, mixes_steps=value == "mixed")

    change = Change(name="shift", form="shift=mixed|apart", about="", cost="", how=str, apply=apply)
    apart, mixed = (answer(start(*levels), [("shift", value)], (change,)) for value in ("apart", "mixed"))
    assert mixed.predicted == apart.predicted
    assert mixed.spread == pytest.approx(mixed.baseline.noise * abs(mixed.predicted - mixed.baseline.measured))
    assert mixed.spread < apart.spread


def test_the_cost_is_that_of_the_value(start: Start) -> None:
    costs = {"2x": "buy two", "1x": "nothing"}
    found = answer(start(), [("network", "2x")], (replace(CHANGES[0], costs=costs),))
    assert [row["cost"] for row in tabulate_answer(found)[0].to_json()] == ["buy two"]
    assert {change.name for change in KNOWN if change.costs} == {"schedule", "optimizer", "recompute"}
    for known in KNOWN:
        assert all(cost in known.cost for cost in known.costs.values())
        assert not known.costs or set(known.tried) <= set(known.costs)


def test_hardware_is_ranked_apart_from_what_the_job_can_set(start: Start) -> None:
    network, compute, *_ = CHANGES
    result, best = ranking(start(), (network, replace(compute, is_hardware=True)))
    told = result.to_json()
    assert [row["change"] for row in told["changes"]] == ["network=2x", "network=1x"]
    assert [row["change"] for row in told["hardware"]] == ["compute=2x"]
    assert best == "network=2x"
    assert told["verdict"].startswith("network=2x saves the most")


def test_hardware_is_what_no_setting_gives() -> None:
    assert {change.name for change in KNOWN if change.is_hardware} == {
        "device",
        "network.bandwidth",
        "network.latency",
        "world_size",
    }


def test_what_one_reason_holds_for_stands_together(start: Start) -> None:
    network, _, never, _ = CHANGES
    partly = replace(network, tried=("nonsense", "2x"))
    result, _ = ranking(start(), (never, partly, replace(never, name="neither", tried=("on", "off"))))
    rows = result.to_json()["not_applicable"]
    assert [row["change"] for row in rows] == ["never, neither", "network=nonsense"]
    assert len(rows[0]["changes"]) == 3


def test_what_limits_the_run_is_noted_once_for_all(start: Start) -> None:
    assert any("Only one step was recorded" in note for note in ranking(start(STEP), CHANGES)[0].notes)


def test_a_run_that_cannot_be_asked_says_why_once() -> None:
    told = listing(None, "no whole step", CHANGES).to_json()
    assert told["verdict"] == "None of 4 changes applies to this run: no whole step."
    assert {(row["applies"], row["here"]) for row in told["changes"]} == {(False, "no")}


def test_the_list_says_what_applies(start: Start) -> None:
    rows = {row["name"]: row for row in listing(start(), known=CHANGES).to_json()["changes"]}
    assert {name: row["applies"] for name, row in rows.items()} == {
        "network": True,
        "compute": True,
        "never": False,
        "untried": None,
    }
    assert rows["never"]["here"] == "no: no loader was recorded"


def test_a_change_has_one_value(start: Start) -> None:
    with pytest.raises(UsageError, match="bucket_mb is given twice"):
        answer(start(), [("bucket_mb", "5"), ("bucket_mb", "25")])
