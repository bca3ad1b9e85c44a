"""Tables `clocks` and `arrivals` of ingested clusters, against their truth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lostflops.ingest import ingest
from lostflops.store.run import Run
from lostflops.testing import Clock, Generated, LostRecords, Model, Straggler, SyntheticCluster, store
from made_captures import BASE, MS, end, frames, session, write

OFFSETS = {0: Clock(0), 1: Clock(-987_654_321), 2: Clock(5_000_003)}
SLOW = (Straggler(1, "slow_kernels", factor=1.5),)
CLUSTERS = {
    "data": SyntheticCluster(ranks=5, ranks_per_host=2, clocks=OFFSETS, stragglers=SLOW),
    "tensor and data": SyntheticCluster(ranks=6, ranks_per_host=2, tensor_parallel=2, clocks=OFFSETS),
    "without numbers": SyntheticCluster(
        ranks=6, ranks_per_host=2, tensor_parallel=2, clocks=OFFSETS, record_seq=False, stragglers=SLOW
    ),
    "pipeline": SyntheticCluster(
        ranks=4, ranks_per_host=2, pipeline_parallel=2, microbatches=3, model=Model(layers=4), clocks={1: Clock(70_000)}
    ),
}


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with Run.open(folder) as run:
        return run.sql(query).fetchall()


def true_meetings(made: Generated) -> Counter[tuple[Any, ...]]:
    """Ranks with their waits, and whom they waited for."""
    found: Counter[tuple[Any, ...]] = Counter()
    for collective in made.truth.collectives:
        last = max(collective.arrivals.values())
        waits = {rank: last - arrival for rank, arrival in collective.arrivals.items()}
        late = collective.late_rank if any(waits.values()) else None
        found[(late, *sorted(waits.items()))] += 1
    return found


def told_meetings(folder: Path) -> Counter[tuple[Any, ...]]:
    listed: dict[int, list[tuple[int, int]]] = {}
    late: dict[int, int | None] = {}
    query = "select meeting, rank, wait, late_rank from arrivals where event is not null order by meeting, rank"
    for meeting, rank, wait, last in rows(folder, query):
        listed.setdefault(meeting, []).append((rank, wait))
        late[meeting] = last
    return Counter((late[meeting], *waits) for meeting, waits in listed.items())


@pytest.fixture(scope="module", params=CLUSTERS.values(), ids=CLUSTERS)
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Generated, Path]:
    made = request.param.generate()
    return made, store(made, tmp_path_factory.mktemp("aligned") / "run", host_names=True)


def test_waits_are_the_truth(stored: tuple[Generated, Path]) -> None:
    made, folder = stored
    assert told_meetings(folder) == true_meetings(made)
    assert rows(folder, "select distinct seen = expected from arrivals") == [(True,)]
    assert rows(folder, "select distinct basis from arrivals where basis not in ('clock', 'ends')") == []


def test_clocks_are_the_truth(stored: tuple[Generated, Path]) -> None:
    made, folder = stored
    (reference,) = {row[0] for row in rows(folder, "select reference from clocks")}
    found = rows(folder, "select rank, correction, uncertainty, drift, method from clocks order by rank")
    assert [row[0] for row in found] == list(range(len(made.truth.ranks)))
    for rank, correction, uncertainty, drift, method in found:
        own, home = made.truth.ranks[rank], made.truth.ranks[reference]
        assert (correction, drift) == (home.clock.offset - own.clock.offset, 0.0)
        assert (uncertainty == 0) == (own.host == home.host)
        same = "reference" if rank == reference else "same host"
        assert method == (same if own.host == home.host else "collectives")


def test_arrivals_and_collectives_are_joined_by_event(stored: tuple[Generated, Path]) -> None:
    """Every collective has one row, and its start on the common clock."""
    _, folder = stored
    query = """select count(*), count(a.event), count(distinct (a.rank, a.event)),
                      bool_and(a.arrived = c.start + k.correction), bool_and(a.wait between 0 and c.stop - c.start),
                      bool_and(a.step is not distinct from c.step), bool_and(a.is_transfer = (c.op in ('send', 'recv')))
               from collectives c left join arrivals a using (rank, event) join clocks k on k.rank = c.rank"""
    ((total, *counts, arrived, wait, step, transfer),) = rows(folder, query)
    assert counts == [total, total]
    assert (arrived, wait, step, transfer) == (True,) * 4
    per_rank = "select rank, matched + unmatched, matched from clocks order by rank"
    own = dict(rows(folder, "select rank, count(*) from collectives group by 1"))
    assert rows(folder, per_rank) == [(rank, count, count) for rank, count in sorted(own.items())]


def both_tables(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    return {name: sorted(rows(folder, f"from {name}"), key=str) for name in ("clocks", "arrivals")}


@pytest.mark.parametrize("lost", [LostRecords(), LostRecords(kernels=0.1, metadata=0.2)], ids=["whole", "lost"])
def test_ranks_in_two_goes(tmp_path: Path, lost: LostRecords) -> None:
    made = SyntheticCluster(ranks=4, ranks_per_host=2, clocks={1: Clock(12_345, 20.0)}, lost=lost).generate()
    files = made.traces.write(tmp_path / "traces")
    ingest(files, tmp_path / "once", workers=1)
    ingest([files[2], files[0]], tmp_path / "twice", workers=1)
    assert [row[0] for row in rows(tmp_path / "twice", "select rank from clocks order by 1")] == [0, 2]
    ingest([files[3], files[1]], tmp_path / "twice", workers=1)
    assert both_tables(tmp_path / "twice") == both_tables(tmp_path / "once")
    assert len(both_tables(tmp_path / "once")["clocks"]) == 4


def test_one_rank(tmp_path: Path) -> None:
    files = SyntheticCluster(ranks=3).generate().traces.write(tmp_path / "traces")
    ingest(files[1:2], tmp_path / "run", workers=1)
    query = "select rank, reference, method, correction, uncertainty, matched, unmatched from clocks"
    assert rows(tmp_path / "run", query) == [(1, 1, "reference", 0, 0, 0, 0)]
    assert rows(tmp_path / "run", "from arrivals") == []


def test_members_outside_the_run(tmp_path: Path) -> None:
    made = SyntheticCluster(ranks=4, stragglers=(Straggler(3, "slow_kernels", factor=1.5),)).generate()
    ingest(made.traces.write(tmp_path / "traces")[:2], tmp_path / "run", workers=1)
    assert rows(tmp_path / "run", "select distinct expected, seen from arrivals") == [(4, 2)]
    assert {row[0] for row in rows(tmp_path / "run", "select distinct late_rank from arrivals")} <= {0, 1, None}


def test_lost_records_have_rows_without_event(tmp_path: Path) -> None:
    made = SyntheticCluster(ranks=4, steps=4, lost=LostRecords(kernels=0.15), seed=4).generate()
    folder = store(made, tmp_path / "run")
    missing = rows(folder, "select rank, wait, arrived, basis from arrivals where event is null")
    assert missing
    assert all(row[1:] == (None, None, None) for row in missing)
    query = "select meeting, any_value(seen), count(event), count(*) from arrivals group by 1"
    assert all(seen == events and members == 4 for _, seen, events, members in rows(folder, query))
    kept = {(rank, wait) for _, *waits in true_meetings(made) for rank, wait in waits}
    whole = set(rows(folder, "select rank, wait from arrivals where seen = 4"))
    assert whole
    assert whole <= kept


def test_no_collectives(tmp_path: Path) -> None:
    files = SyntheticCluster(ranks=1).generate().traces.write(tmp_path / "traces")
    ingest(files, tmp_path / "run", workers=1)
    assert rows(tmp_path / "run", "select rank, method, constraints from clocks") == [(0, "reference", 0)]
    assert rows(tmp_path / "run", "from arrivals") == []


def test_untied_ranks_have_no_offset(tmp_path: Path) -> None:
    """Ranks 3 and 5 share a group, and rank 0 none with them."""
    cluster = SyntheticCluster(ranks=8, ranks_per_host=2, tensor_parallel=2, clocks={2: Clock(10**9)})
    files = cluster.generate().traces.write(tmp_path / "traces", host_names=True)
    ingest([files[rank] for rank in (0, 3, 5)], tmp_path / "run", workers=1)
    query = "select rank, reference, method, correction, uncertainty is null, drift, spread from clocks order by 1"
    assert rows(tmp_path / "run", query) == [
        (0, 3, "untied", None, True, None, None),
        (3, 3, "reference", 0, False, 0.0, 0),
        (5, 3, "collectives", -(10**9), False, 0.0, 0),
    ]
    assert {row[0] for row in rows(tmp_path / "run", "select distinct rank from arrivals")} == {3, 5}


@pytest.mark.parametrize(("attempt", "counts"), [("older", False), ("traced", True)])
def test_readings_of_the_traced_attempt_bound_clocks(tmp_path: Path, attempt: str, counts: bool) -> None:
    """In the older attempt rank 1 was on another host, whose clock was 5 s ahead."""
    files = SyntheticCluster(ranks=2, ranks_per_host=1).generate().traces.write(tmp_path / "traces", host_names=True)
    query = "select method, correction, uncertainty, constraints from clocks order by rank"
    ingest(files, tmp_path / "alone", workers=1)
    ((begin,),) = rows(tmp_path / "alone", "select min(start) from events")
    begins = {"older": begin - 100_000 * MS - BASE, "traced": begin - 1_000 * MS - BASE}
    for rank in range(2):
        sessions = []
        for number, (name, start) in enumerate(begins.items()):
            wall = BASE + start + 90_000 * MS
            ahead = 5_000 * MS if name == "older" else 0
            reading = {
                "wall": wall,
                "monotonic": 1,
                "peer": 1 - rank,
                "peer_wall": wall + (ahead if rank == 0 else -ahead),
            }
            told = [session(rank, wall=start, restart=number, host=f"{name}{rank}")]
            told += [{"kind": "clock", **reading}] if name == attempt else []
            sessions.append(frames(rank, name, [*told, end(start + 95_000 * MS)]))
        write(tmp_path / "run" / "capture", rank, *sessions)
    ingest([*files, tmp_path / "run" / "capture"], tmp_path / "run", workers=1)
    alone, beside = (rows(tmp_path / name, query) for name in ("alone", "run"))
    assert [row[0] for row in beside] == ["reference", "collectives"]
    assert (beside != alone) == counts
