"""Schedules by the names that torch.distributed.pipelining gives to passes."""

from __future__ import annotations

import pytest
from tests.predict.graph.tiny import graph

from lostflops.account.align.pipeline_actions import annotated_schedule, name_schedule, parse_actions
from lostflops.core.errors import NotApplicable
from lostflops.explain.analyze.pipeline import pipeline
from lostflops.predict.whatif.changes.schedule import CHANGE
from lostflops.predict.whatif.graph_edits.orders import Gradients, PipelineShape, order
from lostflops.predict.whatif.run_facts import facts_of
from memory_run import MemoryRun

# `pipeline_order` of the schedules of torch 2.13 on two ranks with four stages and four microbatches; the last ones are
# made by hand.
ZERO_BUBBLE = {
    0: "0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 0I2 0W2 0I3 0W3",
    1: "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3",
}
ZBV = {
    0: "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3",
    1: "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3",
}
DUALPIPEV = {
    0: "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1)OVERLAP_F_B (3F2;0B0)OVERLAP_F_B 3B2 (3F3;0B1)OVERLAP_F_B 3B3 "
    "0I2 0W2 0I3 0W3",
    1: "1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0)OVERLAP_F_B (1F3;2B1)OVERLAP_F_B (2F3;1B1)OVERLAP_F_B 2B2 1B2 2I3 1I3 2W3 1W3",
}
INTERLEAVED = {
    0: "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
    1: "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
}
ONE_F_ONE_B = {0: "0F0 0F1 0B0 0F2 0B1 0B2", 1: "1F0 1B0 1F1 1B1 1F2 1B2"}
GPIPE = {0: "0F0 0F1 0B0 0B1", 1: "1F0 1F1 1B0 1B1"}
NO_KNOWN = {0: "0F0 0F1 0B0 0B1 0F2 0F3 0B2 0B3", 1: "1F0 1F1 1B0 1B1 1F2 1F3 1B2 1B3"}


def dualpipe(stages: int, microbatches: int) -> dict[int, str]:
    shape = PipelineShape(stages, 2, microbatches)
    kinds = {Gradients.ALL: "B", Gradients.OF_INPUTS: "I", Gradients.OF_WEIGHTS: "W"}
    return {
        rank: " ".join(
            f"{stages - 1 - rank if one.chunk else rank}{kinds[Gradients(one.gradients)] if one.backward else 'F'}"
            f"{one.microbatch}"
            for one in order("dualpipe", rank, shape)
        )
        for rank in range(stages)
    }


SCHEDULES = {
    "zero_bubble": ZERO_BUBBLE,
    "zbv": ZBV,
    "dualpipev": DUALPIPEV,
    "dualpipe": dualpipe(4, 8),
    "interleaved": INTERLEAVED,
    "1f1b": ONE_F_ONE_B,
    "gpipe": GPIPE,
    "other": NO_KNOWN,
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_schedule_is_named_by_its_passes(name, replicas) -> None:
    ran = SCHEDULES[name]
    orders = {
        rank + replica * len(ran): [action for word in text.split() for action in parse_actions(word)]
        for replica in range(replicas if name != "dualpipe" else 1)
        for rank, text in ran.items()
    }
    assert name_schedule(orders) == name


def annotated(ran: dict[int, str]) -> MemoryRun:
    """A run of two steps with these passes, with the transfers that torch annotates as well."""
    events = [
        {"rank": rank, "kind": "annotation", "name": f"PP:{word}", "start": step * 1000 + at, "dur": 1, "step": step}
        for rank, text in ran.items()
        for step in (3, 4)
        for at, word in enumerate(("0SEND_F0", *text.split(), "1RECV_B3"))
    ]
    return MemoryRun(ranks=[{"rank": rank} for rank in ran], events=events)


@pytest.mark.parametrize(
    ("ran", "name", "said"),
    [
        (ZERO_BUBBLE, "zero_bubble", "The schedule is zero bubble; its bubble is unknown"),
        (ZBV, "zbv", "The schedule is ZBV (zero bubble, two chunks in a V); its bubble is unknown"),
        (DUALPIPEV, "dualpipev", "The schedule is DualPipeV; its bubble is unknown"),
        (INTERLEAVED, "interleaved", "The bubble is unknown: no pipeline was found"),
    ],
)
def test_pipeline_names_the_schedule_of_a_trace(ran, name, said) -> None:
    with annotated(ran) as run:
        found = pipeline(run).to_json()
        assert annotated_schedule(run) == name
    assert found["verdict"].startswith(said)
    assert found["bubble"]["schedule"] == name
    assert found["bubble"]["achieved"] is found["bubble"]["inherent"] is None


def test_the_what_if_refuses_a_schedule_that_cuts_backward_passes() -> None:
    with annotated(ZBV) as run:
        facts = facts_of(run, graph([]))
    with pytest.raises(NotApplicable, match=r"the run uses ZBV .*, whose passes cannot be rearranged"):
        CHANGE.apply(graph([]), "1f1b", facts)


def test_other_annotations_name_no_schedule() -> None:
    events = [{"rank": 0, "kind": "annotation", "name": "forward", "start": 0, "dur": 1, "step": 1}]
    with MemoryRun(ranks=[{"rank": 0}], events=events) as run:
        assert annotated_schedule(run) is None
