"""Pipelines whose stages or microbatches are known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from lostflops.account.ledger.lines import WAIT_LINES
from lostflops.explain.advise.rules import few_microbatches, stage_imbalance
from lostflops.explain.advise.signs.machine import HostMachine
from lostflops.explain.advise.signs.stages import Stages

STAGES = Stages(ranks=((0,), (1,), (2,), (3,)), steps=np.arange(2), own=np.ones((4, 2)), step_ns=1.0, microbatches=4)


@pytest.mark.parametrize(("microbatches", "idle"), [(1, 3 / 4), (4, 3 / 7), (12, 3 / 15)])
def test_what_is_inherent_to_a_pipeline(microbatches, idle):
    assert STAGES.inherent(microbatches) == pytest.approx(idle)


@pytest.mark.parametrize(
    ("ratio", "steps", "is_cpu", "is_sure"),
    [
        pytest.param(1.2, 3, True, False, id="few steps of ranks that share cores"),
        pytest.param(1.2, 3, False, True, id="few steps of devices"),
        pytest.param(1.2, 8, True, True, id="enough steps"),
        pytest.param(1.5, 3, True, True, id="far longer"),
    ],
)
def test_a_stage_that_is_longer_by_little_is_suspected_in_few_steps(monkeypatch, ratio, steps, is_cpu, is_sure):
    rest = (3 - ratio) / 2
    own = 1e9 * np.array([[rest], [rest], [ratio]]) * np.ones((1, steps))
    found = Stages(ranks=((0,), (1,), (2,)), steps=np.arange(steps), own=own, step_ns=1e9, microbatches=12)
    monkeypatch.setattr(stage_imbalance, "stages", lambda _: found)
    monkeypatch.setattr(stage_imbalance, "machine", lambda _: HostMachine(is_cpu, "gloo"))
    lines = {rank: dict.fromkeys(WAIT_LINES, 10**8) for rank in range(3)}
    case = SimpleNamespace(lines=lines, wall=3 * 10**9, price=lambda _: None, more_steps="--steps 8:20")
    (claim,) = stage_imbalance.find(case)
    assert (claim.suspected == "", claim.record == "") == (is_sure, is_sure)


@pytest.mark.parametrize(("microbatches", "claims"), [(3, 1), (4, 0)])
def test_four_microbatches_per_stage_are_not_advised_to_be_four(monkeypatch, microbatches, claims):
    found = Stages(ranks=((0,), (1,)), steps=np.arange(4), own=np.ones((2, 4)), step_ns=1.0, microbatches=microbatches)
    monkeypatch.setattr(few_microbatches, "stages", lambda _: found)
    monkeypatch.setattr(few_microbatches, "is_shaped", lambda _: True)
    lines = {rank: dict.fromkeys(WAIT_LINES, 10**8) for rank in range(2)}
    assert len(list(few_microbatches.find(SimpleNamespace(lines=lines, wall=10**9)))) == claims
