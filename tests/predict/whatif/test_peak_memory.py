"""Memory beside time: the peak before and after, with what may be wrong with it."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.account.memory.made import Block, memory
from tests.made_whatif import made

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import Owner
from lostflops.core.errors import NotApplicable
from lostflops.core.stats import PEAKS_DIFFER
from lostflops.predict.whatif.answer import Applied
from lostflops.predict.whatif.change import Change, Edited, Facts, Remembered
from lostflops.predict.whatif.memory_edits.editing import scale_blocks, select_owned_blocks
from lostflops.predict.whatif.peak_memory import collect_memory_notes, predict_memory

START = memory(
    Block(Owner.PARAMETERS, 600),
    Block(Owner.ACTIVATIONS, 400, 10, 20, phase="forward", step=1),
    Block(Owner.ACTIVATIONS, 400, 30, 40, phase="forward", step=2),
)
FACTS = Facts(times=None, memory=START)
Remember = Callable[[RankMemory, str, Facts], Remembered]


def halved(kept: RankMemory, value: str, facts: Facts) -> Remembered:
    return Remembered(
        scale_blocks(kept, select_owned_blocks(kept, Owner(value)), 0.5), 0.2, (f"{value} halved, {facts.replicas}",)
    )


def applied(remember: Remember | None, value: str = "activations", facts: Facts | None = None) -> Applied:
    change = Change(
        name="halve",
        form="halve=OWNER",
        about="",
        cost="",
        how=str,
        apply=lambda graph, value, facts: Edited(graph=graph, doubt=0.0),
        again=True,
    )
    return Applied(replace(change, remember=remember), value, Edited(graph=made(), doubt=0.0, facts=facts), 0.0)


def test_the_interval_holds_what_the_change_doubts_and_what_runs_differ_by() -> None:
    found = predict_memory(FACTS, [applied(halved)])
    assert (found.before.peak_bytes, found.after.peak_bytes) == (1000, 800)
    off = np.hypot(0.2 * 200, PEAKS_DIFFER * 800)
    assert (found.low, found.high) == (round(800 - off), round(800 + off))


def test_changes_compose_and_know_what_the_ones_before_them_made_so() -> None:
    later = replace(FACTS, replicas=8)
    found = predict_memory(FACTS, [applied(halved, facts=later), applied(halved, "parameters")])
    assert found.after.peak_bytes == 500
    assert found.notes == ("halve=activations: activations halved, None", "halve=parameters: parameters halved, 8")
    assert found.off == pytest.approx(np.sqrt((0.2 * 200) ** 2 + (0.2 * 300) ** 2 + (PEAKS_DIFFER * 500) ** 2))


def test_owners_sum_to_the_peak() -> None:
    found = predict_memory(FACTS, [applied(halved)]).to_json()
    assert sum(found["owners_before"].values()) == found["before"] == 1000
    assert sum(found["owners_after"].values()) == found["after"] == 800
    assert (found["owners_after"]["activations"], found["rank"], found["device"]) == (200, 0, "cpu")


def test_steps_that_differ_widen_the_interval() -> None:
    uneven = memory(
        Block(Owner.PARAMETERS, 600),
        *(Block(Owner.ACTIVATIONS, 100, 10 * n, 10 * n + 5, phase="forward", step=n) for n in range(1, 4)),
        Block(Owner.ACTIVATIONS, 400, 50, 60, phase="forward", step=4),
    )
    found = predict_memory(replace(FACTS, memory=uneven), [])
    assert found.off == pytest.approx(1000 * np.hypot(PEAKS_DIFFER, 0.3))


def refuses(kept: RankMemory, value: str, facts: Facts) -> Remembered:
    raise NotApplicable("of a reason")


@pytest.mark.parametrize(
    ("facts", "remember", "reason"),
    [
        (Facts(times=None), halved, "no memory was recorded"),
        (FACTS, None, "the effect of halve=activations on memory is unknown"),
        (FACTS, refuses, "cannot be predicted: of a reason"),
    ],
)
def test_what_is_not_known_has_a_reason(facts: Facts, remember: Remember | None, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        predict_memory(facts, [applied(remember)])


def test_people_read_the_peak_in_one_sentence() -> None:
    found = predict_memory(FACTS, [applied(halved)])
    assert found.verdict == ("Peak memory on rank 0 (cpu) becomes 800 B (759 B to 841 B), 20.0% less than 1.00 kB.")
    assert list(collect_memory_notes(found)) == ["Memory, halve=activations: activations halved, None"]
    assert list(collect_memory_notes("why not")) == ["Memory: why not."]
    assert predict_memory(FACTS, []).verdict == "Peak memory on rank 0 (cpu) stays 1.00 kB."
