"""experts=even: every rank computes as long as the mean load takes, and keeps what does not depend on its load."""

from __future__ import annotations

import numpy as np
import pytest
from tests.predict.graph.tiny import L, M, T, graph

from lostflops.account.align.expert_loads import ExpertLoads, ExpertTrip
from lostflops.core.errors import NotApplicable
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import LaneKind, TaskGraph, TaskKind
from lostflops.predict.whatif.change import Facts
from lostflops.predict.whatif.changes import experts

RANKS = 4
STEPS = 6
RATE = 10
"""Time of a byte."""
FIXED = 700
"""Time of an exchange's experts without any token."""
BEFORE = 5_000
CHANCE = np.random.default_rng(0)
HOT = np.array([100, 100, 300, 100]) + CHANCE.integers(-20, 20, (STEPS, RANKS))


def job(times: np.ndarray, *, is_seen: bool = True) -> TaskGraph:
    """Every step computes, sends tokens, lets experts compute so long, and brings them back; no op shows what experts
    do unless it `is_seen`."""
    lanes = []
    for rank in range(RANKS):
        tasks = []
        for step in range(STEPS):
            tasks += [
                T(f"layer {rank} {step}", BEFORE, 0, TaskKind.KERNEL, step=step),
                T(f"there {rank} {step}", 0, 0, TaskKind.COMM, f"there {step}", step=step),
                T(f"expert {rank} {step}", *expert(int(times[step, rank]), is_seen=is_seen), step=step),
                T(f"back {rank} {step}", 0, 0, TaskKind.COMM, f"back {step}", step=step),
            ]
        lanes.append(L(rank, LaneKind.HOST, tasks))
    meetings = {f"{way} {step}": M(50, "all_to_all", ranks=RANKS) for step in range(STEPS) for way in ("there", "back")}
    steps = [(r, s, f"layer {r} {s}", f"back {r} {s}") for r in range(RANKS) for s in range(STEPS)]
    return graph(lanes, meetings=meetings, steps=steps)


def expert(time: int, *, is_seen: bool) -> tuple[int, int, TaskKind]:
    return (time, 0, TaskKind.KERNEL) if is_seen else (0, time, TaskKind.HOST)


def facts(made: TaskGraph, load: np.ndarray) -> Facts:
    trips = [ExpertTrip("0@0-3", step, step, 0, 0, load[step].astype(float)) for step in range(STEPS)]
    sent_by = {
        (int(rank), int(event)): int(name.rsplit(" ", 1)[1])
        for rank, event, name in zip(
            made.rank, made.tasks.event, [made.words[at] for at in made.tasks.name], strict=True
        )
        if name.startswith("there")
    }
    loads = ExpertLoads(tuple(range(RANKS)), tuple(trips), sent_by)
    return Facts(times=None, experts=lambda: loads)


@pytest.mark.parametrize("is_seen", [True, False], ids=["an op", "between ops"])
def test_the_mean_load_takes_its_time(is_seen: bool) -> None:
    made = job(FIXED + RATE * HOT, is_seen=is_seen)
    edited = experts.CHANGE.apply(made, "even", facts(made, HOT))
    expected = STEPS * (BEFORE + 2 * 50 + FIXED) + RATE * HOT.mean(axis=1).sum()
    assert replay(edited.graph).stop.max() == pytest.approx(expected, abs=STEPS)
    assert edited.doubt == 0.15


def test_a_slow_rank_stays_slow() -> None:
    """Rank 1 takes longer in every step, whatever it gets."""
    slow = np.array([0, 4_000, 0, 0])
    made = job(FIXED + RATE * HOT + slow)
    assert replay(made).stop.max() == STEPS * (BEFORE + 2 * 50 + FIXED + 4_000) + RATE * HOT[:, 1].sum()
    with pytest.raises(NotApplicable, match="does not follow"):
        experts.CHANGE.apply(made, "even", facts(made, HOT))


def test_time_that_does_not_follow_the_load_is_not_saved() -> None:
    made = job(np.full((STEPS, RANKS), 4_000) + CHANCE.integers(-500, 500, (STEPS, RANKS)))
    with pytest.raises(NotApplicable, match="does not follow"):
        experts.CHANGE.apply(made, "even", facts(made, HOT))


def test_a_job_without_experts_has_nothing_to_balance() -> None:
    with pytest.raises(NotApplicable, match="no pair of all-to-alls"):
        experts.CHANGE.apply(job(HOT), "even", Facts(times=None))
