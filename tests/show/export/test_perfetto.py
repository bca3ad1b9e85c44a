"""A run as a Perfetto trace, read back with Perfetto's schema: every slice against the tables of the run."""

from collections import Counter, defaultdict
from functools import cache
from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.show.export.decoded import decode, proto

from lostflops.account.align.one_clock import OneClock
from lostflops.account.ledger.record import records
from lostflops.account.ledger.strips import whole
from lostflops.core.errors import UsageError
from lostflops.show.export.packets import Packets, TrackPlace
from lostflops.show.export.perfetto import write_perfetto
from lostflops.show.export.protobuf import times, varint
from lostflops.show.export.spread import SpreadSlices
from lostflops.store.run import Run
from lostflops.testing import Clock, Straggler, SyntheticCluster, store

CLUSTER = SyntheticCluster(
    ranks=4,
    ranks_per_host=1,
    steps=3,
    stragglers=(Straggler(2, "slow_kernels", factor=1.6),),
    clocks={1: Clock(700_000_000, 20.0), 2: Clock(-350_000_000, -30.0), 3: Clock(5_000_000)},
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with Run.open(store(CLUSTER.generate(), tmp_path_factory.mktemp("perfetto") / "run", host_names=True)) as opened:
        yield opened
        clock_of.cache_clear()


def exported(run, **asked):
    stream = BytesIO()
    written = write_perfetto(run, stream, **asked)
    return decode(stream.getvalue()), written


@pytest.fixture(scope="module")
def trace(run):
    return exported(run)[0]


clock_of = cache(OneClock.of)


def shared(run, rank, *own):
    return tuple(clock_of(run).to_common(rank, np.array(own, np.int64)).tolist())


def rank_of(each):
    return int(each.process.split(" · ")[0].removeprefix("rank "))


def test_every_event_is_a_slice_of_its_lane(run, trace):
    rows = run.sql(
        "select rank, start, start + dur, e.name, e.kind, event, trim(l.name), stream, thread "
        "from events e join lanes l using (rank, lane) where e.kind <> 'span'"
    ).fetchall()
    lanes = {row[6] or (f"stream {row[7]}" if row[7] is not None else f"thread {row[8]}") for row in rows}
    expected = Counter(
        (rank, *shared(run, rank, start, stop), name, kind, event) for rank, start, stop, name, kind, event, *_ in rows
    )
    events = [each for each in trace.slices if each.category not in ("ledger", "collective", "step")]
    found = Counter(
        (rank_of(each), each.start, each.stop, each.name, each.category, each.told["event"]) for each in events
    )
    assert found == expected
    assert sum(found.values()) > 1000
    assert {each.track for each in events} == lanes


def test_the_ledger_is_a_track_that_closes(run, trace):
    assert {each.track for each in trace.of("ledger")} == {"ledger"}
    found = {(rank_of(each), each.start, each.stop, each.name) for each in trace.of("ledger")}
    expected = {
        (record.rank, *shared(run, record.rank, start, stop), line)
        for record in records(run, run.ranks)
        for line, held in whole(record).lines.items()
        for start, stop in zip(held.start, held.stop, strict=True)
    }
    assert found == expected
    for rank in run.ranks:
        own = sorted((start, stop) for of, start, stop, _ in found if of == rank)
        assert all(stop == start for (_, stop), (start, _) in pairwise(own))


def test_waits_and_transfers_stand_apart(run, trace):
    rows = run.sql(
        "select rank, start, start + wait, stop, op, wait, late_rank from collectives join arrivals using (rank, event)"
    ).fetchall()
    waits = Counter((rank, *shared(run, rank, start, ready), f"{op}, wait", late)
                    for rank, start, ready, _, op, wait, late in rows if wait)  # fmt: skip
    transfers = Counter((rank, *shared(run, rank, ready, stop), f"{op}, transfer", None)
                        for rank, _, ready, stop, op, _, _ in rows)  # fmt: skip
    found = Counter(
        (rank_of(each), each.start, each.stop, each.name, each.told.get("late_rank")) for each in trace.of("collective")
    )
    assert found == waits + transfers
    assert {late for *_, late in waits} == {2}


def test_collectives_are_linked_over_all_ranks(run, trace):
    ends, ranks = defaultdict(list), defaultdict(set)
    for each in trace.of("comm"):
        (flow,) = each.flows
        ends[flow].append(each.stop)
        ranks[flow].add(rank_of(each))
    assert set(map(len, ranks.values())) == {4}
    assert len(ranks) == run.sql("select count(distinct meeting) from arrivals").fetchall()[0][0]
    assert all(max(each) - min(each) < 1000 for each in ends.values())


def test_an_arrow_leads_from_each_launch_to_its_kernel(run, trace):
    from_call = {flow: each for each in trace.of("runtime") for flow in each.flows}
    found = set()
    for each in trace.slices:
        for flow in each.ends:
            call = from_call[flow]
            assert call.process == each.process
            found.add((rank_of(each), each.told["event"], call.told["event"]))
    expected = run.sql(
        "select k.rank, k.event, min(r.event) from events k join events r using (rank, correlation) "
        "where k.kind in ('kernel', 'comm', 'memcpy', 'memset') and r.kind = 'runtime' group by 1, 2"
    ).fetchall()
    assert found == set(expected)
    assert len(from_call) == len(expected) > 100


def test_steps_stand_on_their_own_tracks(run, trace):
    for name, columns in (("steps", "start, stop"), ("steps on the device", "device_start, device_stop")):
        rows = run.sql(f"select rank, step, {columns} from steps").fetchall()
        expected = {(rank, f"step {step}", *shared(run, rank, *edges)) for rank, step, *edges in rows}
        own = [each for each in trace.of("step") if each.track == name]
        assert {(rank_of(each), each.name, each.start, each.stop) for each in own} == expected


def test_processes_say_how_certain_their_clock_is(run, trace):
    processes = [track for track in trace.tracks.values() if track.HasField("process")]
    assert [each.process.process_name for each in processes] == [f"rank {k} · host{k} · {device}" for k, device in
        run.sql("select rank, device from ranks order by rank").fetchall()]  # fmt: skip
    assert [("±" in each.process.process_labels[0]) for each in processes] == [False, True, True, True]
    assert all(each.process.pid for each in processes)
    assert len({each.process.pid for each in processes}) == 4


def test_a_part_of_a_run(run, trace):
    part, written = exported(run, ranks=[1, 3], steps=[11])
    assert written.ranks == 2
    assert written.slices == len(part.slices)
    assert {rank_of(each) for each in part.slices} == {1, 3}
    assert {each.told["step"] for each in part.of("kernel") if "step" in each.told} >= {11}
    (window,) = run.sql("select min(least(start, device_start)), max(greatest(stop, device_stop)) from steps "
                        "where rank = 1 and step = 11").fetchall()  # fmt: skip
    start, stop = shared(run, 1, *window)
    whole_kernels = [each for each in trace.of("kernel") if rank_of(each) == 1]
    expected = {each.told["event"] for each in whole_kernels if each.start < stop and each.stop > start}
    assert {each.told["event"] for each in part.of("kernel") if rank_of(each) == 1} == expected
    assert 0 < len(expected) < len(whole_kernels)
    ledger = [each for each in part.of("ledger") if rank_of(each) == 1]
    assert min(each.start for each in ledger) >= start
    assert max(each.stop for each in ledger) <= stop


@pytest.mark.parametrize(("asked", "said"), [({"ranks": [9]}, "no rank 9"), ({"steps": [99]}, "step 99")])
def test_what_is_not_there_is_refused(run, asked, said):
    with pytest.raises(UsageError, match=said):
        exported(run, **asked)


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=40)


@given(spans)
def test_overlaps_are_kept_exactly(lengths):
    """Begin and end nest on each track by time and order alone, as a viewer pairs them."""
    slices = sorted(((start, start + dur) for start, dur in lengths), key=lambda each: (each[0], -each[1]))
    stream = BytesIO()
    packets = Packets(stream, 0)
    packets.process(1, 1, "rank 0", [], "")
    spread = SpreadSlices(packets, TrackPlace(1, "lane", 5, "lane"), iter(range(2, 100)))
    for at, (start, stop) in enumerate(slices):
        edges = times(np.array([start, stop]))
        body = packets.encode_name(f"{at}") + packets.of_category("kernel")
        spread.add(start, stop, (edges[0], edges[1]), body)
    spread.close()
    found = decode(stream.getvalue())
    assert {int(each.name): (each.start, each.stop) for each in found.slices} == dict(enumerate(slices))
    own = [track for track in found.tracks.values() if track.name]
    assert len(own) <= max(1, len(slices))
    assert {track.sibling_merge_key for track in own} <= {"lane"}


def test_slices_that_nest_need_one_track():
    stream = BytesIO()
    packets = Packets(stream, 0)
    spread = SpreadSlices(packets, TrackPlace(1, "lane", 5), iter(range(2, 100)))
    for start, stop in ((0, 10), (0, 4), (4, 10), (5, 6), (10, 12)):
        edges = times(np.array([start, stop]))
        spread.add(start, stop, (edges[0], edges[1]), packets.encode_name("x") + packets.of_category("y"))
    assert packets.tracks == 1
    spread.add(11, 14, (b"\x0b", b"\x0e"), b"")
    assert packets.tracks == 2


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_times_are_varints(values):
    packets = [proto.TracePacket.FromString(b"\x40" + each) for each in times(np.array(values, np.int64))]
    assert [packet.timestamp for packet in packets] == values


@given(st.integers(-(2**63), 2**63 - 1))
def test_negative_numbers_are_kept(value):
    assert proto.TrackEvent.FromString(b"\xf0\x01" + varint(value)).counter_value == value
