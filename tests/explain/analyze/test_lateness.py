"""When ranks are late, by step and phase: clusters and arrivals whose truth is known."""

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from lostflops.account.late.arrivals import by_rank, by_step
from lostflops.account.ledger.scope import Scope
from lostflops.account.ledger.windows import WindowKind
from lostflops.core.results import Field, Result, Section, Table
from lostflops.explain.analyze.lateness import lateness
from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import Kernel, Model, Straggler, SyntheticCluster

LATE = 3
FACTOR = 1.5
KERNEL = 1_000_000
EVEN = SyntheticCluster(
    ranks=8,
    steps=3,
    noise=0.0,
    model=Model(layers=2, kernels=(Kernel(KERNEL, (1024, 512, 512)),)),
)
SLOW = replace(EVEN, stragglers=(Straggler(LATE, "slow_kernels", factor=FACTOR),))


@pytest.fixture(scope="module")
def slow(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("slow")
    ingest(SLOW.generate().traces.write(folder / "traces"), folder / "run", workers=1)
    with Run.open(folder / "run") as run:
        yield run


def cells(result: Result, block: str) -> dict[str, dict[str, Any]]:
    return {row["row"]: row["values"] for row in result.to_json()[block]}


def test_a_slow_rank_is_late_in_every_step_and_nobody_else_is(slow):
    found = cells(lateness(slow), "arrivals_by_step")
    steps = [str(step) for (step,) in slow.sql("select distinct step from steps order by step").fetchall()]
    assert [*found] == [str(rank) for rank in range(8)]
    assert all([*row] == steps for row in found.values())
    for step in steps:
        assert max(found, key=lambda rank: found[rank][step]) == str(LATE)
        assert found[str(LATE)][step] > 0.1 * KERNEL
        assert all(found[rank][step] == 0 for rank in found if rank != str(LATE))


def test_a_step_is_late_by_the_mean_of_its_arrivals(slow):
    """Said again in SQL of its own: the lateness behind the median of eight, the lower of the two in the middle."""
    step, expected = slow.sql(
        f"""with met as (select step, arrived, rank, list_sort(list(arrived) over (partition by meeting))[4] as middle
                        from arrivals where not is_transfer)
            select step, avg(arrived - middle) from met where rank = {LATE} group by step order by step"""
    ).fetchall()[0]
    assert cells(lateness(slow), "arrivals_by_step")[str(LATE)][str(step)] == round(expected)


def test_own_time_exceeds_the_cohort_by_what_kernels_take_longer(slow):
    result = lateness(slow)
    by_phase, by_step = cells(result, "excess_by_phase"), cells(result, "excess_by_step")
    forward, backward = by_phase[str(LATE)]["forward"], by_phase[str(LATE)]["backward"]
    assert forward == pytest.approx((FACTOR - 1) * 2 * KERNEL, rel=0.05)
    assert backward == pytest.approx((FACTOR - 1) * 4 * KERNEL, rel=0.05)
    assert all(value < 0.05 * forward for rank, row in by_phase.items() for value in row.values() if rank != str(LATE))
    mean = sum(by_step[str(LATE)].values()) / 3
    assert mean == pytest.approx(sum(by_phase[str(LATE)].values()), rel=0.05)
    assert result.verdict.startswith(f"Rank {LATE} is late by ")
    assert result.verdict.endswith("in all 3 steps: the same kernels take longer (compute). Most of it is in backward.")


def test_where_no_rank_is_late_none_is_named(tmp_path):
    ingest(replace(EVEN, noise=0.02).generate().traces.write(tmp_path / "traces"), tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        verdict = lateness(run).verdict
    assert verdict.startswith("No rank is late. ")
    assert "Rank" not in verdict


def test_some_steps(slow):
    found = lateness(slow, steps=[int(next(iter(cells(lateness(slow), "excess_by_step")["0"])))])
    assert [len(row) for row in cells(found, "arrivals_by_step").values()] == [1] * 8


def test_many_ranks_and_steps_are_bounded_and_that_is_said(slow, monkeypatch):
    monkeypatch.setattr(sys.modules[lateness.__module__], "MOST_STEPS", 2)
    monkeypatch.setattr(sys.modules[lateness.__module__], "MOST_RANKS", 4)
    found = lateness(slow)
    assert [len(row) for row in cells(found, "excess_by_step").values()] == [2] * 4
    assert str(LATE) in cells(found, "excess_by_step")
    assert [*cells(found, "arrivals_by_step")] == [*cells(found, "excess_by_phase")]
    assert [note[:27] for note in found.notes] == ["4 of 8 ranks are shown: tho", found.notes[1][:27]]


def test_stages_have_nobody_to_be_compared_with(tmp_path):
    cluster = replace(EVEN, ranks=2, pipeline_parallel=2, microbatches=2)
    ingest(cluster.generate().traces.write(tmp_path / "traces"), tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = lateness(run)
    assert "Every rank does different work" in found.verdict
    assert {value for row in cells(found, "excess_by_phase").values() for value in row.values()} == {None}
    assert "excess_by_phase" not in {block.name for block in found.blocks}


def test_a_rank_that_meets_nobody_on_its_clock_is_not_told_to_be_in_time():
    """Three ranks meet in step 1; in step 2 the clocks of two of them are unrelated."""
    rows = [(1, 0, 1, 100), (1, 1, 1, 100), (1, 2, 1, 900), (2, 0, 2, 1000), (2, 1, 2, None), (2, 2, 2, None)]
    with duckdb.connect() as made:
        made.execute("create table arrivals (meeting int, rank int, step int, arrived bigint, is_transfer bool)")
        made.executemany("insert into arrivals values (?, ?, ?, ?, false)", rows)
        asked = Scope(WindowKind.STEPS, (0, 1, 2), ())
        fields = tuple(map(Field, "abcdef"))
        clock = Section("clocks", "", (), Table("clocks", "", fields, tuple((rank, *[0] * 5) for rank in range(3))))
        run = SimpleNamespace(rows=lambda query: made.execute(query).fetchall())
        assert by_step(run, asked, clock) == {(0, 1): 0.0, (1, 1): 0.0, (2, 1): 800.0}
        assert by_rank(run, asked, clock) == {0: 0.0, 1: 0.0, 2: 800.0}
