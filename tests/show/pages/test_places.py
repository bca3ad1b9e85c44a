"""Findings are shown where they happened: on the rank that is late, on the line that its fault costs, before the
longest wait for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive.derive import with_accounts
from lostflops.account.derive.timeline import TimelineSpan
from lostflops.core.estimate import Strength
from lostflops.core.results import Finding, FindingPlace
from lostflops.explain.advise.diagnose import diagnosis_of
from lostflops.show.pages.places import places_of
from lostflops.store.run import Run
from lostflops.testing import CAUSES, Clock, Straggler, SyntheticCluster, store

LATE = 2
FAULTS = {
    "slow_kernels": Straggler(LATE, "slow_kernels", factor=1.6),
    "more_work": Straggler(LATE, "more_work", factor=1.6),
    "larger_batch": Straggler(LATE, "larger_batch", factor=1.6),
    "late_data": Straggler(LATE, "late_data", delay=1_500_000),
    "host_stall": Straggler(LATE, "host_stall", delay=1_500_000),
    "allocation": Straggler(LATE, "allocation", delay=1_500_000),
}
ONE_HOST = SyntheticCluster(ranks=4, steps=4)
TWO_CLOCKS = replace(ONE_HOST, ranks_per_host=2, clocks={0: Clock(5_000_000, 20.0), 1: Clock(-3_000_000, -15.0)})
KINDS = {
    "compute": ("kernel",),
    "idle.data": ("annotation", "op"),
    "idle.python": ("annotation", "op"),
    "idle.alloc": ("op", "runtime"),
}
"""Of events that may be shown for a line."""
ROUNDED = 2
"""Nanoseconds: clocks that drift are read in whole ones."""


def line_that_costs(cluster: SyntheticCluster) -> str:
    """Return the line on which the late rank spends more time than it would without its fault."""
    late = cluster.generate().truth.ranks[LATE].lines
    usual = replace(cluster, stragglers=()).generate().truth.ranks[LATE].lines
    return max(late, key=lambda line: late[line] - usual[line])


def stored(cluster: SyntheticCluster, folder: Path) -> Run:
    return with_accounts(Run.open(store(cluster.generate(), folder / "run")))


def in_common(run: Run, rank: int, *moments: int) -> tuple[int, ...]:
    """Return moments of a rank's own clock as the timeline has them."""
    clock = OneClock.of(run)
    span = TimelineSpan.of(run, clock)
    assert span is not None
    return tuple((clock.to_common(rank, np.array(moments)) - span.start).tolist())


def longest_wait(run: Run, where: str = "true") -> tuple[int, tuple[int, ...]]:
    """Return which rank waits longest for the late one, and when."""
    [(rank, start, stop)] = run.rows(
        f"""select rank, start, stop from stretches
            where line in ('comm.wait', 'comm.bubble') and late_rank = {LATE} and {where}
            order by stop - start desc, rank, start limit 1"""
    )
    return rank, in_common(run, rank, start, stop)


def near(moments: tuple[int, ...]) -> object:
    return pytest.approx(moments, abs=ROUNDED)


def check_stall(run: Run, place: FindingPlace, line: str) -> None:
    """Check that the stall is time of the late rank on this line, and that the event happened in it."""
    assert (place.rank, place.line) == (LATE, line)
    start, stop = place.stall
    assert 0 <= start < stop
    stretches = run.rows(f"select start, stop from stretches where rank = {LATE} and line = '{line}'")
    own = [in_common(run, LATE, *stretch) for stretch in stretches]
    assert any(first - ROUNDED <= start and stop <= last + ROUNDED for first, last in own)
    [(kind, begin, dur)] = run.rows(
        f"select kind, start, dur from events where rank = {LATE} and event = {place.event}"
    )
    first, last = in_common(run, LATE, begin, begin + dur)
    assert first < stop
    assert last > start
    assert kind in KINDS[line]


def test_every_cause_is_planted() -> None:
    assert FAULTS.keys() == set(CAUSES)


@pytest.mark.parametrize("cluster", [ONE_HOST, TWO_CLOCKS], ids=["one host", "two clocks"])
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.few(3)
def test_a_late_rank_is_shown_with_its_stall_and_the_longest_wait_for_it(
    cause: str, cluster: SyntheticCluster, tmp_path: Path
) -> None:
    planted = replace(cluster, stragglers=(FAULTS[cause],))
    # The ledger begins with the first kernel: data that is late for the first step is not on any line.
    later = "start > (select s.device_start from steps s where s.rank = stretches.rank and s.step = 11)"
    with stored(planted, tmp_path) as run:
        late = next(one for one in diagnosis_of(run).findings if LATE in one.ranks)
        (place,) = places_of(run, [late])
        victim, wait = longest_wait(run, later if cause == "late_data" else "true")
        assert place is not None
        check_stall(run, place, line_that_costs(planted))
        assert place.victim == victim != LATE
        assert place.wait == near(wait)
        assert place.stall[1] <= place.wait[1] + ROUNDED


def finding(ranks: tuple[int, ...], lines: dict[str, int]) -> Finding:
    return Finding(
        id="made", level="found", cause="made", what="It is made.", lost_ns=9, lost_share=0.1, rank_hours=1.0, usd=None,
        ranks=ranks, evidence=(), strength=Strength.STRONG, probability=None,
        certain_if="", fix="Less of it.", lines=lines,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    planted = replace(ONE_HOST, stragglers=(FAULTS["slow_kernels"],))
    with stored(planted, tmp_path_factory.mktemp("late")) as opened:
        yield opened


def test_a_finding_without_ranks_is_shown_by_the_longest_stretch_that_it_costs(run: Run) -> None:
    (place,) = places_of(run, [finding((), {"copy": 5, "comm.transfer": 9})])
    [(rank, start, stop)] = run.rows(
        "select rank, start, stop from stretches where line = 'comm.transfer' order by stop - start desc, rank, start"
        " limit 1"
    )
    assert place is not None
    assert (place.rank, place.line, place.victim, place.wait) == (rank, "comm.transfer", None, None)
    assert place.stall == near(in_common(run, rank, start, stop))
    [(kind,)] = run.rows(f"select kind from events where rank = {rank} and event = {place.event}")
    assert kind == "comm"


def test_a_finding_that_no_stretch_shows_has_no_place(run: Run) -> None:
    assert places_of(run, [finding((), {"idle.alloc": 9})]) == (None,)
    assert places_of(run, []) == ()


def test_a_run_without_stretches_has_no_places(tmp_path: Path) -> None:
    planted = replace(ONE_HOST, stragglers=(FAULTS["slow_kernels"],))
    with Run.open(store(planted.generate(), tmp_path / "run")) as plain:
        assert places_of(plain, [finding((LATE,), {"compute": 9})]) == (None,)
