"""batch: what grows with it in time and in memory."""

from __future__ import annotations

import pytest
from tests.account.memory.made import Block, memory
from tests.predict.fit import jobs
from tests.predict.graph.tiny import L, T, graph, starts

from lostflops.account.ledger.phases import BACKWARD, FORWARD, OPTIMIZER
from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable, UsageError
from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes import CHANGES
from lostflops.predict.whatif.changes.batch import CHANGE

NO_FACTS = Facts(times=None)


def test_it_is_known():
    assert CHANGE in CHANGES


def test_passes_grow_and_the_update_stays():
    phases = {"ahead": FORWARD, "back": BACKWARD, "update": OPTIMIZER}
    made = graph(
        [L(0, LaneKind.STREAM, [T(name, 100, 0, TaskKind.KERNEL, phase=phase) for name, phase in phases.items()])]
    )
    edited = CHANGE.apply(made, "3", NO_FACTS)
    assert starts(edited.graph, edited.graph.tasks.duration) == {"ahead": 300, "back": 300, "update": 100}
    assert edited.doubt >= 0.5
    assert any("lostflops fit" in note for note in edited.notes)


def test_a_run_without_passes_is_refused():
    made = graph([L(0, LaneKind.STREAM, [T("x", 100, 0, TaskKind.KERNEL, phase=OPTIMIZER)])])
    with pytest.raises(NotApplicable, match="cannot be distinguished"):
        CHANGE.apply(made, "2", NO_FACTS)


@pytest.mark.parametrize("factor", ["2", "0.5", "8x"])
def test_the_peak_becomes_that_of_the_other_batch(factor):
    remembered = CHANGE.remember(jobs.job(160), factor, NO_FACTS)
    remembered.memory.self_check()
    assert remembered.memory.peak_bytes == jobs.peak(round(160 * float(factor.removesuffix("x"))))


def test_a_gradient_before_it_is_added_stays():
    """What backward allocates and is as large as a parameter is no sample's."""
    own = {"phase": "backward", "step": 0}
    made = memory(
        Block(Owner.TEMPORARIES, 4000, 10, 20, **own),
        Block(Owner.TEMPORARIES, 300, 11, 20, **own),
    )
    facts = Facts(times=None, parameters=(("weight", 4000, None),))
    assert CHANGE.remember(made, "2", facts).memory.peak_bytes == 4600
    assert CHANGE.remember(made, "2", NO_FACTS).memory.peak_bytes == 8600


def test_where_backward_leaves_new_gradients_what_is_as_large_may_be_a_sample_s():
    """Both are possible: it is scaled, and the doubt reaches as far as if it were not."""
    own = {"phase": "backward", "step": 0}
    made = memory(
        Block(Owner.TEMPORARIES, 4000, 10, 20, **own),
        Block(Owner.TEMPORARIES, 1000, 11, 20, **own),
        Block(Owner.GRADIENTS, 4000, 30, 40, **own),
    )
    found = CHANGE.remember(made, "2", Facts(times=None, parameters=(("weight", 4000, None),)))
    assert found.memory.peak_bytes == 10_000
    assert found.doubt == pytest.approx(4000 / 5000)


def test_memory_without_samples_is_refused():
    with pytest.raises(NotApplicable, match="no activations"):
        CHANGE.remember(memory(Block(Owner.PARAMETERS, 100)), "2", NO_FACTS)


@pytest.mark.parametrize("value", ["0", "-2", "more", "nan"])
def test_what_is_no_factor_is_refused(value):
    with pytest.raises(UsageError, match="give a positive number"):
        CHANGE.apply(graph([]), value, NO_FACTS)


def test_as_recorded_is_refused():
    with pytest.raises(NotApplicable, match="is the recorded batch"):
        CHANGE.remember(jobs.job(16), "1", NO_FACTS)
