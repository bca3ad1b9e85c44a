"""Ranks that send to a server whose records are missing: waiting beyond the shortest transfer is synchronisation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.account.ledger.phases import BACKWARD
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes.staleness import CHANGE


def test_only_the_shortest_transfer_is_paid():
    lanes, meetings, steps = [], {}, []
    for rank, waited in enumerate((0, 500)):
        tasks = []
        for step in range(2):
            key = f"{rank}.{step}"
            meetings[f"s{key}"] = M(100 + waited * (1 - step), op="send", size=1000, group="")
            tasks.append(T(f"compute{key}", 50, kind=TaskKind.KERNEL, phase=BACKWARD, step=step))
            tasks.append(T(f"send{key}", kind=TaskKind.COMM, meets=f"s{key}", step=step))
            steps.append((rank, step, f"compute{key}", f"send{key}"))
        lanes.append(L(rank, LaneKind.HOST, tasks))
    made = graph(lanes, (), meetings, steps)
    alone = replace(made, meetings=replace(made.meetings, whole=np.zeros(4, np.bool_)))
    assert replay(alone).step_times.tolist() == [150, 150, 650, 150]
    found = CHANGE.apply(alone, "unbounded", Facts(times=None))
    assert replay(found.graph).step_times.tolist() == [150] * 4
    assert any("server" in note for note in found.notes)
    with pytest.raises(NotApplicable):
        CHANGE.apply(alone, "0", Facts(times=None))
