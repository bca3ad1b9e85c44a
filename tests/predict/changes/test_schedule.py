"""Other orders of passes, against pipelines that were simulated both ways and against a job recorded both ways."""

from __future__ import annotations

import numpy as np
import pytest
from tests.graph.tiny import L, T, graph
from tests.predict.pipelines import passes, recorded, step_time
from tests.shared_data import TRACES, needs_traces

from lostflops.graph.build import build
from lostflops.graph.replay import replay
from lostflops.graph.tasks import Kind, LaneKind
from lostflops.ingest import ingest
from lostflops.predict.change import Facts, NotApplicable
from lostflops.predict.changes.schedule import CHANGE
from lostflops.predict.orders import Shape
from lostflops.predict.pipeline import pipeline
from lostflops.predict.relaid import relaid
from lostflops.store.run import Run

NOTHING = Facts(None)
MS = 1e6
PRIMUS = TRACES / "AMD-AGI__Primus" / "pp_vis" / "gpu8_layer64_gbs16"


@pytest.mark.parametrize(("before", "after"), [("1f1b", "gpipe"), ("gpipe", "1f1b")])
def test_as_simulated_both_ways(before, after, tmp_path):
    time = passes(Shape(4, 1, 8))
    made = recorded(tmp_path / "job", before, time)
    changed = CHANGE.apply(made, after, NOTHING)
    assert replay(made).stop.max() == pytest.approx(2 * step_time(before, time) * MS, rel=0.001)
    assert replay(changed.graph).stop.max() == pytest.approx(2 * step_time(after, time) * MS, rel=0.001)
    assert step_time(before, time) != pytest.approx(step_time(after, time), rel=0.001)


@pytest.mark.parametrize("before", ["1f1b", "gpipe"])
def test_interleaved_halves_of_stages(before, tmp_path):
    time = passes(Shape(4, 1, 8))
    halves = np.repeat(time / 2, 2, axis=1)
    changed = CHANGE.apply(recorded(tmp_path / "job", before, time), "interleaved", NOTHING)
    assert replay(changed.graph).stop.max() == pytest.approx(2 * step_time("interleaved", halves) * MS, rel=0.001)
    assert step_time("interleaved", halves) < 0.95 * step_time(before, time)


def test_chunks_become_whole_stages_again(tmp_path):
    time = passes(Shape(4, 2, 8))
    whole = time.sum(axis=1, keepdims=True)
    changed = CHANGE.apply(recorded(tmp_path / "job", "interleaved", time), "1f1b", NOTHING)
    assert replay(changed.graph).stop.max() == pytest.approx(2 * step_time("1f1b", whole) * MS, rel=0.001)


def test_what_cannot_be(tmp_path):
    made = recorded(tmp_path / "job", "1f1b", passes(Shape(4, 1, 6)))
    with pytest.raises(NotApplicable, match="follows 1f1b already"):
        CHANGE.apply(made, "1f1b", NOTHING)
    with pytest.raises(NotApplicable, match="6 are not a multiple of 4"):
        CHANGE.apply(made, "interleaved", NOTHING)
    plain = graph([L(0, LaneKind.STREAM, [T("a", 5, 0, Kind.KERNEL)])], steps=[(0, 0, "", "")])
    with pytest.raises(NotApplicable, match="no passes of microbatches"):
        CHANGE.apply(plain, "1f1b", NOTHING)


@pytest.fixture(scope="module")
def primus(tmp_path_factory):
    made = {}
    for name in ("pp8", "pp8_vpp2"):
        folder = tmp_path_factory.mktemp("primus") / name
        ingest([PRIMUS / name], folder, workers=1)
        with Run.open(folder) as run:
            made[name] = build(run)
    return made


def usual(times, made):
    """Median over steps past the first two, which warm up."""
    return float(np.median(times[made.steps.number > 2]))


@needs_traces
@pytest.mark.parametrize(("name", "schedule"), [("pp8", "1f1b"), ("pp8_vpp2", "interleaved")])
def test_laid_as_recorded_a_step_takes_as_long(name, schedule, primus):
    made = primus[name]
    found = pipeline(made)
    assert found.schedule == schedule
    again = replay(relaid(made, found, schedule, found.shape))
    assert usual(again.step_times, made) == pytest.approx(usual(made.steps.measured, made), rel=0.004)


@needs_traces
@pytest.mark.parametrize(
    ("name", "schedule", "other"), [("pp8", "interleaved", "pp8_vpp2"), ("pp8_vpp2", "1f1b", "pp8")]
)
def test_a_job_recorded_both_ways(name, schedule, other, primus):
    """Off by -3.0% and +2.2%: halves of stages took more than half, which only a recording of them tells. That is 19%
    and 16% of the predicted change, which its doubt has to hold."""
    made, truth = primus[name], primus[other]
    changed = replay(CHANGE.apply(made, schedule, NOTHING).graph)
    was, will = usual(replay(made).step_times, made), usual(changed.step_times, made)
    predicted = usual(made.steps.measured, made) * will / was
    measured = usual(truth.steps.measured, truth)
    assert predicted == pytest.approx(measured, rel=0.035)
    assert (predicted > usual(made.steps.measured, made)) == (measured > usual(made.steps.measured, made))
