"""Predictions start from normal steps where the collector timed them."""

from math import hypot
from pathlib import Path

import pytest
from tests.explain.advise.rules.made_loops import Loop

from lostflops.predict.whatif.answer import answer
from lostflops.predict.whatif.baseline import baseline
from lostflops.predict.whatif.predictions import make_prediction
from lostflops.predict.whatif.score import measured_step
from lostflops.store.run import Run

MS = 1_000_000


@pytest.mark.parametrize("slower", [1.0, 1.5])
def test_a_prediction_is_about_normal_steps(tmp_path: Path, slower: float) -> None:
    """Steps of 100 ms, 40 of them Python; profiled ones take `slower` times as long, in all parts alike. Python gone
    saves 40% of a normal step, and the more steps differ the less that is certain."""
    loop = Loop(
        compute=lambda rank, number: round(60 * (slower if number >= 24 else 1)),
        python=lambda rank, number: round(40 * (slower if number >= 24 else 1)),
    )
    with Run.open(loop.write(tmp_path)) as run:
        start = baseline(run)
        found = answer(start, [("python", "removed")])
        kept, later = make_prediction(run, found), (measured_step(run, "timings"), measured_step(run, "trace"))
    assert start.measured == pytest.approx(100 * MS, rel=0.01)
    assert start.profiled == pytest.approx(slower * 100 * MS, rel=0.01)
    assert start.error == pytest.approx(0, abs=0.01)
    assert found.gain == pytest.approx(0.4, abs=0.01)
    says = "Profiled steps took 1.50x as long as normal ones."
    assert (says in start.graph.notes) == (slower > 1)
    # A part that was not stretched saves 1.5 times as much, one that was stretched twice 1.5 times less.
    expected = 0.4 * (1.5 - 1 / 1.5) / 2 if slower > 1 else 0.0
    own = 0.4 * found.applied[0].edited.doubt
    assert found.doubts.changes / start.measured == pytest.approx(hypot(expected, own), abs=0.01)
    assert (kept.baseline.steps_from, kept.baseline.measured_ns) == ("timings", pytest.approx(100 * MS, rel=0.01))
    # A later run is measured in the same way, by its 23 normal steps; older predictions by profiled ones of both ranks.
    assert later[0] == (pytest.approx(100 * MS, rel=0.01), 23)
    assert later[1] == (pytest.approx(slower * 100 * MS, rel=0.01), 12)
