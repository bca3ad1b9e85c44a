"""Totals of random selections, against counting by hand, against plain SQL, and stored against computed."""

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lostflops.account.align.one_clock import OneClock
from lostflops.account.derive import selection
from lostflops.account.derive.derive import derive
from lostflops.account.derive.selection import total_selection
from lostflops.account.derive.timeline import TimelineSpan
from lostflops.account.ledger.from_rows import has_stretches
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.parts import communication_shares
from lostflops.account.ledger.record import records
from lostflops.account.ledger.shares import by_event
from lostflops.account.ledger.strips import whole
from lostflops.core.errors import UsageError
from lostflops.ingest import ingest
from lostflops.store.intervals import Intervals
from lostflops.store.run import Run
from lostflops.testing import Clock, Straggler, SyntheticCluster, store
from shared_data import TRACES, needs_traces

SELECTIONS = 200
CLUSTER = SyntheticCluster(
    ranks=4,
    ranks_per_host=1,
    pipeline_parallel=2,
    steps=3,
    stragglers=(Straggler(2, "slow_kernels", factor=1.6),),
    clocks={1: Clock(700_000_000, 20.0), 2: Clock(-350_000_000, -30.0), 3: Clock(5_000_000)},
)
FAR = 2**62


def cluster(folder: Path) -> Path:
    """Devices in a pipeline, with clocks that are off and drift."""
    return store(CLUSTER.generate(), folder / "run", host_names=True)


def cpu_rank(rank: int) -> str:
    """A rank without a device: ops inside others, a node of autograd, and an all-reduce for which rank 1 is late."""

    def event(name, start, dur, cat="cpu_op", tid=1, **args):
        return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": dur, "pid": 9, "tid": tid, "args": args}

    events, late = [], 100 * rank
    for step in range(12):
        at = 1_000_000 + 1000 * step
        events += [
            event(f"ProfilerStep#{step}", at, 1000, cat="user_annotation"),
            event("aten::linear", at + 5, 200 + late),
            event("aten::addmm", at + 10, 150 + late),
            event("autograd::engine::evaluate_function: MmBackward0", at + 320, 60),
            event("aten::mm", at + 330, 40),
            event("gloo:all_reduce", at + 400 + late, 300 - late, tid=2),
            event("aten::add_", at + 760, 90),
            event("aten::mul", at + 2, 900, tid=3),
        ]
    info = {"rank": rank, "world_size": 2, "backend": "gloo", "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
    return json.dumps({"host_name": "h", "distributedInfo": info, "traceEvents": events})


def threads(folder: Path) -> Path:
    files = [folder / f"rank{rank}.json" for rank in (0, 1)]
    for rank, file in enumerate(files):
        file.write_text(cpu_rank(rank))
    ingest(files, folder / "run", workers=1)
    return folder / "run"


def nanogpt(folder: Path) -> Path:
    ingest(sorted(TRACES.glob("KellerJordan__modded-nanogpt/2025-12-11*")), folder / "run", workers=1)
    return folder / "run"


@pytest.fixture(
    scope="module", params=[cluster, threads, pytest.param(nanogpt, marks=[needs_traces, pytest.mark.slow])]
)
def run(request, tmp_path_factory):
    folder = request.param(tmp_path_factory.mktemp("selection"))
    derive(folder)
    with Run.open(folder) as opened:
        assert has_stretches(opened, opened.ranks)
        yield opened


def choices(run):
    """Random ranks and times, with edges of the timeline, and edges of events, among them."""
    span, chance = TimelineSpan.of(run, OneClock.of(run)), random.Random(7)
    length = span.stop - span.start
    begun = run.rows("select start from events where rank = 0 and kind <> 'span' limit 1000")
    times = sorted({0, *(start - span.start for (start,) in begun if 0 <= start - span.start < length)})
    for _ in range(SELECTIONS):
        start = chance.choice([0, chance.randrange(length), chance.choice(times)])
        stop = chance.choice([length, length + 5, chance.randrange(start, length) + 1, start + 1])
        yield chance.sample(run.ranks, chance.randint(0, len(run.ranks))), start, stop


def edges_of(run, ranks, start, stop):
    clock = OneClock.of(run)
    span = TimelineSpan.of(run, clock)
    for rank in sorted(ranks) or run.ranks:
        first, last = clock.own(rank, np.array([span.start + start, span.start + stop])).tolist()
        yield rank, first if start > 0 else -FAR, last if span.start + stop < span.stop else FAR


@pytest.fixture(scope="module")
def everything(run):
    return {record.rank: (record, whole(record).lines) for record in records(run, run.ranks)}


@pytest.fixture(scope="module")
def asked(run):
    return [(choice, total_selection(run, *choice)) for choice in choices(run)]


@pytest.mark.few(1)
def test_lines_and_waits_are_those_of_the_partition(run, everything, asked):
    for choice, found in asked:
        lines, waits = Counter(dict.fromkeys(LINES, 0)), Counter()
        for rank, first, last in edges_of(run, *choice):
            record, spans = everything[rank]
            cut = {line: span.clip(first, last) for line, span in spans.items()}
            lines.update({line: span.total for line, span in cut.items()})
            for line, shares in communication_shares(record, cut):
                for late, ns in zip(record.communication.late.tolist(), shares.tolist(), strict=True):
                    if ns and line != "comm.transfer":
                        waits[late if late >= 0 else None] += ns
        assert found.lines == lines
        assert found.waits == waits
        assert list(found.waits.values()) == sorted(waits.values(), reverse=True)
        assert found.total == lines.total()
    assert any(found.waits for _, found in asked)


def test_lines_and_waits_are_those_of_plain_sql(run, asked):
    for choice, found in asked:
        lines, waits = Counter(dict.fromkeys(LINES, 0)), Counter()
        for rank, first, last in edges_of(run, *choice):
            ns = f"least(stop, {last}) - greatest(start, {first})"
            where = f"rank = {rank} and start < {last} and stop > {first}"
            for line, late, time in run.sql(f"select line, late_rank, {ns} from stretches where {where}").fetchall():
                lines[line] += time
                if line in ("comm.wait", "comm.bubble"):
                    waits[late] += time
        assert (found.lines, found.waits) == (lines, waits)


def test_the_query_sums_the_same_lines(run, asked):
    for choice, found in asked:
        cuts = {tuple(own) for _, *own in edges_of(run, *choice)}
        assert bool(found.query) == (len(cuts) == 1)
        if found.query:
            assert len(found.query) < 400
            assert dict(run.sql(found.query).fetchall()) == {line: ns for line, ns in found.lines.items() if ns}
    assert any(found.query and len(found.ranks) > 1 for _, found in asked)


def test_the_query_names_ranks_in_short():
    def written(*ranks, is_all=False):
        return selection._write_query(dict.fromkeys(ranks, (5, 9)), is_all=is_all)

    assert " where stop > 5 and start < 9 group " in written(0, 1, is_all=True)
    assert " where rank in (3) and " in written(3)
    assert " where rank between 2 and 99 and " in written(*range(2, 100))
    assert " where rank in (1, 3) and " in written(1, 3)
    assert not written(*range(0, 100, 2))


def test_a_run_without_stretches_has_the_same_totals(run, asked, monkeypatch):
    monkeypatch.setattr(selection, "has_stretches", lambda *_: False)
    for choice, found in asked[:40]:
        assert total_selection(run, *choice) == found


def overlap(start, stop, first, last):
    return max(0, min(stop, last) - max(start, first))


def test_kernels_are_cut_at_the_edges(run, everything, asked):
    events = run.sql("select rank, name, start, start + dur from events where kind = 'kernel'").fetchall()
    for choice, found in asked:
        counts, times = Counter(), Counter()
        edges = {rank: own for rank, *own in edges_of(run, *choice)}
        for rank, name, start, stop in events:
            if rank in edges and (ns := overlap(start, stop, *edges[rank])):
                counts[name] += 1
                times[name] += ns
        for rank in [rank for rank in edges if not everything[rank][0].on_device]:
            for name, ns in outermost_ops(everything[rank][0], edges[rank]):
                counts[name] += 1
                times[name] += ns
        assert {one.name: (one.count, one.ns) for one in found.kernels} == {
            name: (counts[name], ns) for name, ns in times.items()
        }
        assert [one.ns for one in found.kernels] == sorted(times.values(), reverse=True)
    assert any(found.kernels for _, found in asked)


def outermost_ops(record, edges):
    host = record.host
    rows = host.computing(record.training_lane)
    shares = by_event(host.start[rows], host.stop[rows], Intervals.of([edges[0]], [edges[1]]))
    return [(record.names[host.name[row]], ns) for row, ns in zip(rows, shares.tolist(), strict=True) if ns]


def test_collectives_are_cut_at_the_edges(run, asked):
    calls = run.sql(
        "select rank, coalesce(op, 'unknown communication'), coalesce(group_id, 'unknown group'), start, stop, "
        "coalesce(wait, 0) from collectives left join arrivals using (rank, event)"
    ).fetchall()
    for choice, found in asked:
        sums = {}
        edges = {rank: own for rank, *own in edges_of(run, *choice)}
        for rank, op, group, start, stop, wait in calls:
            if rank in edges and (ns := overlap(start, stop, *edges[rank])):
                own = sums.setdefault((op, group), [0, 0, 0])
                own[0] += 1
                own[1] += ns
                own[2] += overlap(start, min(start + wait, stop), *edges[rank])
        assert {(one.op, one.group): [one.count, one.ns, one.wait] for one in found.collectives} == sums
    assert any(one.wait for _, found in asked for one in found.collectives)


def test_the_whole_timeline_is_all_that_was_recorded(run, everything):
    found = total_selection(run)
    [(recorded,)] = run.rows("select sum(stop - start)::bigint from stretches")
    assert found.total == recorded
    assert found.total == sum(span.total for _, lines in everything.values() for span in lines.values())
    assert found.ranks == run.ranks


def test_neighbouring_selections_sum_to_the_whole(run):
    found = total_selection(run)
    cut = found.stop // 3
    first, rest = total_selection(run, (), 0, cut), total_selection(run, (), cut, found.stop)
    assert {line: first.lines[line] + rest.lines[line] for line in LINES} == found.lines
    assert sum(one.ns for one in (*first.kernels, *rest.kernels)) == sum(one.ns for one in found.kernels)


@pytest.mark.parametrize(("start", "stop"), [(5, 5), (9, 3), (-9, 0), (-(10**19), -1), (10**19, 10**20)])
def test_an_empty_selection_is_refused(run, start, stop):
    with pytest.raises(UsageError, match="selection is empty"):
        total_selection(run, (), start, stop)


def test_an_unknown_rank_is_refused(run):
    with pytest.raises(UsageError, match="no rank 99"):
        total_selection(run, [0, 99])
