"""What the collector wrote, as rows of the run."""

import gzip
import json
import os
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.collect import capture
from lostflops.core.errors import BrokenSource, NotARun, RankConflict, RunError, SourceError
from lostflops.ingest import ingest
from lostflops.ingest.common.reader import RankClaim, ReadTask
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.find.captures import MOST_WINDOWS
from lostflops.ingest.formats.capture import reader
from lostflops.ingest.join.attempts import SessionSpan, number
from lostflops.store.run import Run
from made_captures import BASE, MS, collectives, end, frames, session, step, write, write_window

PHASES = (1 * MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run" / "capture"


@pytest.fixture
def ask(folder):
    """Rows that a question gets from the capture folder, ingested into the run around it."""

    def asked(query, again=True):
        if again:
            ingest([folder], folder.parent, workers=1)
        with Run.open(folder.parent) as run:
            return run.sql(query).fetchall()

    return asked


def stats(ask):
    return {what: (effect, count) for what, effect, count in ask("select what, effect, count from stats")}


def one_rank(*records, name="a", **more):
    return frames(0, name, [session(0, 1), *records], **more)


def test_a_rank(folder, ask):
    used = {
        "cpu": 9,
        "queued": 4,
        "system": 2,
        "faults": 6,
        "preempted": 1,
        "saving": 5,
        "evaluating": 8,
        "comm_hook": 3,
    }
    more = {"samples": 8, "tokens": 4096, "own": 7, "gc": 3, "gc_count": 2, **used}
    first = [session(0, 2, wall=1), step(0, 10, PHASES, compiled=True, **more)]
    second = [
        step(1, 15 * MS + 10, PHASES, peak_memory=99),
        {"kind": "device_step", "step": 0, "time": 123, "forward": 40, "backward": 60, "optimizer": 5},
        end(90 * MS),
    ]
    write(folder, 0, frames(0, "a", first, second, dropped=3))
    assert ask("select * exclude (rank) from timings order by step") == [
        (
            0,
            0,
            BASE + 10,
            BASE + 10 + 15 * MS,
            *PHASES,
            123,
            None,
            40,
            60,
            5,
            1,
            8,
            4096,
            None,
            7,
            3,
            2,
            *used.values(),
            *[None, False, True, False],
        ),
        (
            0,
            1,
            BASE + 10 + 15 * MS,
            BASE + 10 + 30 * MS,
            *PHASES,
            *[None] * 5,
            1,
            None,
            None,
            99,
            0,
            *[None] * 11,
            False,
            False,
            False,
        ),
    ]
    assert ask("select * from attempts") == [(0, 0, "a", "node0", 2, 0, 0, BASE + 1, BASE + 90 * MS, True, 5, 3)]
    assert ask("select host, device, world_size, backend, formats, rank_source, events from ranks") == [
        ("node0", None, 2, "gloo", "capture", "recorded", 0)
    ]
    assert stats(ask) == {"records_dropped": ("dropped", 3)}


def test_collectives_and_groups(folder, ask):
    transfer = [7, "9", 1, "nccl:send 0->1", True, 8, None, BASE + 5]
    unknown = {"kind": "collectives", "entries": [transfer, ["broken"]], "groups": {}, "lost": 4}
    write(folder, 0, frames(0, "a", [session(0), collectives((1, 5), (2, 9), ranks=(1, 0)), unknown, end(9)]))
    assert ask(
        "select record, group_id, seq, op, is_p2p, bytes_in, bytes_out, created from enqueues order by record"
    ) == [
        (1, "0@0-1", 1, "all_reduce", False, 400, 400, BASE + 5),
        (2, "0@0-1", 2, "all_reduce", False, 400, 400, BASE + 9),
        (7, None, 1, "send", True, 8, None, BASE + 5),
    ]
    assert ask("select * from groups") == [("0@0-1", 0, 1, 2, "0", "default_pg", "gloo")]
    assert stats(ask) == {
        "ring_entries_lost": ("missing", 4),
        "malformed_entries": ("dropped", 1),
        "enqueues_without_group": ("missing", 1),
    }


def test_groups_that_were_given_up_before_the_ring_was_read(folder, ask):
    entries = [
        [1, "0", 1, "gloo:all_reduce", False, 8, 8, BASE + 5],
        [2, "5", 1, "gloo:all_reduce", False, 8, 8, BASE + 6],
    ]
    told = {"0": {"ranks": [0, 1], "description": "default_pg", "backend": "gloo"}, "unused": {"ranks": [0]}}
    early = {"kind": "job", "key": "groups", "value": told}
    late = {"kind": "collectives", "entries": entries, "groups": {}, "lost": 0}
    broken = {"kind": "job", "key": "groups", "value": {"5": {"ranks": []}}}
    write(folder, 0, one_rank(early, broken, late, end(9)))
    assert ask("select record, group_id from enqueues order by record") == [(1, "0@0-1"), (2, None)]
    assert ask("select group_id, backend from groups") == [("0@0-1", "gloo")]


def test_facts(folder, ask):
    weight = {"name": "w", "module": "Linear", "shape": [4, 2], "local_shape": [2, 2], "dtype": "float32", "bytes": 16}
    records = [
        {"kind": "parameters", "parameters": [weight | {"trainable": True, "bucket": 0, "unit": None}]},
        {"kind": "job", "key": "ddp", "value": {"bucket_cap_mb": 25}},
        {"kind": "clock", "wall": BASE, "monotonic": 5, "peer": 1, "peer_wall": BASE - 3},
        {"kind": "stacks", "names": {"7": "main a.py:1;f b.py:2"}, "samples": [[BASE + 1, 7], [BASE + 2, 8]]},
        {"kind": "note", "what": "hook_error", "count": 2, "reason": "ValueError in a hook"},
        {"kind": "note", "what": "no_profiler", "count": 1, "reason": "Kineto is not there"},
        {"kind": "overhead", "step": 3, "own_share": 0.02, "level": 1, "reason": "2% of a step"},
        {"kind": "window", "window": 1, "first": 5, "steps": 3, "state": "failed", "time": BASE + 9, "reason": "disk"},
    ]
    write(folder, 0, one_rank(*records, end(9)))
    assert ask("select * exclude (rank) from parameters") == [
        (0, "w", "Linear", "[4,2]", "[2,2]", "float32", 16, True, 0, None)
    ]
    facts = {key: json.loads(value) for key, value in ask("select key, value from job")}
    assert (facts["torch"], facts["script"], facts["ddp"]) == ("2.13.0", "train.py", {"bucket_cap_mb": 25})
    assert facts["window"]["state"] == "failed"
    assert ask("select * exclude (rank) from clock_samples") == [(BASE, 5, 1, BASE - 3)]
    assert ask("select * exclude (rank) from samples") == [(BASE + 1, "main a.py:1;f b.py:2")]
    assert stats(ask) == {
        "hook_error": ("missing", 2),
        "no_profiler": ("note", 1),
        "collector_reduced": ("note", 1),
        "windows_failed": ("missing", 1),
        "samples_without_stack": ("dropped", 1),
    }


def test_only_the_newest_parameters_are_kept(folder, ask):
    def model(name):
        return {"kind": "parameters", "parameters": [{"name": name}]}

    write(folder, 0, one_rank(model("old"), end(2)), frames(0, "b", [session(0, 1, wall=5), model("new"), end(9)]))
    assert ask("select name from parameters") == [("new",)]


def test_what_is_unknown_or_malformed_is_counted_and_left_out(folder, ask):
    good = step(3, 0, PHASES)
    longer_than_itself = good | {"data": 90 * MS}
    huge = good | {"step": 1 << 40}
    beyond = good | {"stop": 1 << 70}
    missing = {key: value for key, value in good.items() if key != "backward"}
    words = good | {"forward": "2"}
    deep = {"kind": "job", "key": "config", "value": json.loads("[" * 100 + "]" * 100)}
    records = [{"kind": "hologram"}, {"step": 3}, "no record", longer_than_itself, huge, beyond, missing, words, good]
    records.append(deep)
    write(folder, 0, one_rank(*records, end(99 * MS)))
    assert ask("select step from timings") == [(3,)]
    assert stats(ask) == {"unknown_records": ("dropped", 1), "malformed_records": ("dropped", 8)}


def test_huge_values(folder, ask):
    most, latest = (1 << 63) - 1, (1 << 61) - 1
    record = step(0, 0, (0, 0, 0, 0, 0), samples=most, tokens=most) | {"start": 0, "stop": latest}
    later = record | {"stop": latest + 1}
    lost = collectives(lost=most)
    write(folder, 0, one_rank(record, later, lost, lost, end(1), dropped=(1 << 62) - 1))
    assert ask("select stop - start, outside, samples from timings") == [(latest, latest, most)]
    assert stats(ask)["malformed_records"] == ("dropped", 1)
    assert stats(ask)["ring_entries_lost"] == ("missing", most)


def test_half_a_surrogate_is_no_text(folder, ask):
    write(folder, 0, one_rank({"kind": "job", "key": "environment", "value": "a\ud800b \U0001f600"}, end(1)))
    assert ask("select value from job where key = 'environment'") == [('"a?b \U0001f600"',)]


def test_a_process_that_does_not_end_was_killed(folder, ask):
    write(folder, 0, one_rank(step(0, 0, PHASES)))
    assert ask("select ended, stop from attempts") == [(False, BASE + 15 * MS)]
    assert stats(ask) == {"killed": ("note", 1)}


def test_a_session_whose_first_frame_is_lost(folder, ask):
    whole = frames(0, "a", [session(0, 1)], [step(0, 7, PHASES)], [end(99 * MS)])
    write(folder, 0, whole[40:])
    assert ask("select world_size, start, ended, records from attempts") == [(None, BASE + 7, True, 2)]
    assert stats(ask) == {
        "torn_frames": ("missing", 1),
        "records_missing": ("missing", 1),
        "sessions_without_start": ("missing", 1),
    }


def test_a_frame_that_was_written_twice_counts_once(folder, ask):
    once = frames(0, "a", [session(0, 1), step(0, 0, PHASES)])
    write(folder, 0, once, once)
    assert ask("select count(*) from timings") == [(1,)]
    assert stats(ask)["repeated_records"] == ("note", 2)


def test_a_host_file_of_many_ranks(folder, ask):
    folder.mkdir(parents=True)
    chunks = [
        frames(rank, f"s{rank}", [session(rank, 300), step(0, 0, PHASES)], [step(1, 15 * MS, PHASES), end(99 * MS)])
        for rank in range(300)
    ]
    capture.host_file(folder, "node0").write_bytes(b"".join(chunks) + b"torn")
    assert ask("select count(distinct rank), count(*), count(distinct attempt), max(attempt) from timings") == [
        (300, 600, 1, 0)
    ]
    assert ask("select rank, count from stats where what = 'torn_frames'") == [(0, 1)]
    assert ask("select count(*), min(world_size) from ranks") == [(300, 300)]


def test_a_rank_that_moves_to_another_host(folder, ask):
    folder.mkdir(parents=True)
    a, b = capture.host_file(folder, "a"), capture.host_file(folder, "b")
    a.write_bytes(frames(0, "a0", [session(0, 1), step(0, 0, PHASES), end(20 * MS)]))
    b.write_bytes(frames(0, "b0", [session(0, 1, wall=30 * MS, restart=1), step(0, 31 * MS, PHASES)]))
    rows = "select attempt, session, restart, stop from attempts order by attempt"
    timings = "select attempt, start from timings order by attempt"
    assert ask(rows) == [(0, "a0", 0, BASE + 20 * MS), (1, "b0", 1, BASE + 46 * MS)]
    assert ask(timings) == [(0, BASE), (1, BASE + 31 * MS)]
    more = frames(0, "b0", [session(0, 1, wall=30 * MS, restart=1), step(0, 31 * MS, PHASES)], [end(50 * MS)])
    b.write_bytes(more)
    assert ask(rows) == [(0, "a0", 0, BASE + 20 * MS), (1, "b0", 1, BASE + 50 * MS)]
    assert ask(timings) == [(0, BASE), (1, BASE + 31 * MS)]


def test_a_rank_of_two_hosts_of_which_one_is_ingested_again(folder, ask):
    folder.mkdir(parents=True)
    a, b = capture.host_file(folder, "a"), capture.host_file(folder, "b")
    b.write_bytes(frames(0, "b0", [session(0, 1, wall=30 * MS, restart=1), step(0, 31 * MS, PHASES)]))
    a.write_bytes(frames(0, "a0", [session(0, 1), step(0, 0, PHASES)]))
    timings = "select attempt, step from timings order by all"
    assert ask(timings) == [(0, 0), (1, 0)]
    a.write_bytes(frames(0, "a0", [session(0, 1), step(0, 0, PHASES)], [step(1, 15 * MS, PHASES)]))
    ingest([a], folder.parent, workers=1)
    assert ask(timings, again=False) == [(0, 0), (0, 1), (1, 0)]
    b.unlink()
    a.write_bytes(frames(0, "a0", [session(0, 1), step(0, 0, PHASES)]))
    with pytest.raises(SourceError, match=r"host-b\.capture is gone, .* rank 0 is also in a file that changed"):
        ingest([a], folder.parent, workers=1)
    assert ask(timings, again=False) == [(0, 0), (0, 1), (1, 0)]


def test_captures_of_two_jobs_conflict(tmp_path):
    first = write(tmp_path / "one", 0, one_rank(end(1)))
    second = write(tmp_path / "two", 0, one_rank(end(1), name="b"))
    with pytest.raises(RankConflict):
        ingest([first, second], tmp_path / "run", workers=1)


def test_no_whole_frame(tmp_path, folder):
    path = write(folder, 3, one_rank(end(1))[:30])
    with pytest.raises(BrokenSource, match="has no whole frame"):
        ingest([path], tmp_path / "out", workers=1)


# Attempts


def shrinking(folder):
    """Two ranks, killed; one rank; two again."""
    first = [frames(rank, f"a{rank}", [session(rank, 2, wall=rank), step(0, 10, PHASES)]) for rank in range(2)]
    alone = frames(0, "b0", [session(0, 1, wall=40 * MS, restart=1), step(0, 41 * MS, PHASES)])
    last = [
        frames(
            rank, f"c{rank}", [session(rank, 2, wall=80 * MS + rank, restart=2), step(0, 81 * MS, PHASES), end(99 * MS)]
        )
        for rank in range(2)
    ]
    write(folder, 0, first[0], alone, last[0])
    write(folder, 1, first[1], last[1])


def test_attempts_of_two_ranks_then_one_then_two(folder, ask):
    shrinking(folder)
    assert ask("select rank, attempt, session, world_size, ended from attempts order by rank, attempt") == [
        (0, 0, "a0", 2, False),
        (0, 1, "b0", 1, False),
        (0, 2, "c0", 2, True),
        (1, 0, "a1", 2, False),
        (1, 2, "c1", 2, True),
    ]
    assert ask("select rank, attempt, start from timings order by rank, attempt") == [
        (0, 0, BASE + 10),
        (0, 1, BASE + 41 * MS),
        (0, 2, BASE + 81 * MS),
        (1, 0, BASE + 10),
        (1, 2, BASE + 81 * MS),
    ]
    assert ask("select distinct rank, attempt from job order by all") == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)]


def test_attempts_are_numbered_anew_when_a_rank_is_added(folder, ask):
    shrinking(folder)
    run = folder.parent
    ingest([capture.rank_file(folder, 1)], run, workers=1)
    query = "select session, attempt from attempts where rank = 1 order by attempt"
    assert ask(query, again=False) == [("a1", 0), ("c1", 1)]
    ingest([capture.rank_file(folder, 0)], run, workers=1)
    assert ask(query, again=False) == [("a1", 0), ("c1", 2)]
    assert ask("select attempt, start from timings where rank = 1 order by attempt", again=False) == [
        (0, BASE + 10),
        (2, BASE + 81 * MS),
    ]


def test_attempts_of_equal_size_are_told_apart_by_their_times(folder, ask):
    for rank in range(2):
        first = frames(rank, f"a{rank}", [session(rank, wall=rank), step(0, 10, PHASES)])
        second = frames(rank, f"b{rank}", [session(rank, wall=40 * MS - rank), step(0, 41 * MS, PHASES)])
        write(folder, rank, *([first, second] if rank else [second]))
    assert ask("select rank, attempt, session from attempts order by rank, attempt") == [
        (0, 1, "b0"),
        (1, 0, "a1"),
        (1, 1, "b1"),
    ]


def test_hosts_that_count_restarts_each_for_itself_are_in_one_attempt(folder, ask):
    """A failure on the first host is a restart there; on the second torchrun begins anew without counting it."""
    for rank, count in enumerate((1, 0)):
        first = frames(rank, f"a{rank}", [session(rank, host=f"node{rank}"), step(0, 10, PHASES)])
        again = session(rank, host=f"node{rank}", wall=40 * MS, restart=count)
        write(folder, rank, first, frames(rank, f"b{rank}", [again, step(0, 41 * MS + rank, PHASES)]))
        event = trace_event("ProfilerStep#0") | {"cat": "user_annotation", "ts": (BASE + 45 * MS) / 1000}
        write_window(folder, rank, 0, [event])
    assert ask("select rank, attempt, host, restart from attempts order by all") == [
        (0, 0, "node0", 0),
        (0, 1, "node0", 1),
        (1, 0, "node1", 0),
        (1, 1, "node1", 0),
    ]
    assert ask("select distinct rank from events order by rank") == [(0,), (1,)]


def test_a_session_without_its_first_record_joins_what_it_overlaps():
    spans = [
        SessionSpan(1, "x", None, None, 0, 30),
        SessionSpan(0, "a", 2, 0, 5, 40),
        SessionSpan(2, "y", None, None, 50, 60),
    ]
    assert number(spans) == {(0, "a"): 0, (1, "x"): 0, (2, "y"): 1}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=8))
def test_attempts_of_random_jobs(job):
    """Attempt after attempt on some ranks, each with a break behind it: the numbers are those of the attempts."""
    truth, spans, now = {}, [], 0
    for attempt, (lowest, lasting) in enumerate(job):
        for rank in range(lowest, 4):
            spans.append(SessionSpan(rank, f"{attempt}-{rank}", 4 - lowest, 0, now + rank, now + 4 + lasting))
            truth[rank, f"{attempt}-{rank}"] = attempt
        now += lasting + 10
    assert number(reversed(spans)) == truth


# Torn files

WHOLE = [
    capture.frame_bytes(0, "a", 0, 0, [session(0, 1), step(0, 0, PHASES)]),
    *(capture.frame_bytes(0, "a", 2 * n, 0, [step(2 * n, 0, PHASES), step(2 * n + 1, 0, PHASES)]) for n in range(1, 5)),
]
EDGES = [sum(map(len, WHOLE[:n])) for n in range(len(WHOLE) + 1)]
STEPS = [[0], *([2 * n, 2 * n + 1] for n in range(1, 5))]


class Rows:
    """Takes parts as the run's writer does, and keeps them."""

    def __init__(self):
        self.steps = []

    def put(self, table, rank, rows, columns):
        if table.name == "timings":
            self.steps += columns["step"]


def read_steps(folder, data):
    """Steps that a file of these bytes gives."""
    rows = Rows()
    path = write(folder, 0, data)
    with suppress(BrokenSource):
        reader.ingest(
            ReadTask(path=path, claim=RankClaim(0, "recorded"), parts=rows, vocabulary=Vocabulary(), spool_folder="")
        )
    return rows.steps


@given(cut=st.integers(1, EDGES[-1]))
def test_a_file_that_is_cut_anywhere_keeps_its_whole_frames(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("cut")
    whole = [steps for steps, edge in zip(STEPS, EDGES[1:], strict=True) if edge <= cut]
    assert read_steps(folder, b"".join(WHOLE)[:cut]) == list(chain(*whole))


@given(place=st.integers(0, EDGES[-1] - 1), mask=st.integers(1, 255))
def test_a_flipped_byte_costs_its_frame_and_no_other(tmp_path_factory, place, mask):
    data = bytearray(b"".join(WHOLE))
    data[place] ^= mask
    hit = next(n for n, edge in enumerate(EDGES[1:]) if place < edge)
    whole = [steps for n, steps in enumerate(STEPS) if n != hit]
    assert read_steps(tmp_path_factory.mktemp("flip"), bytes(data)) == list(chain(*whole))


# The folder


def trace_event(name):
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {}}


def windows(folder, **held):
    """Traces by window, of these ranks; window k has step 10 k, and in it one op with the names of window and rank."""
    for window, ranks in held.items():
        number = int(window[1:])
        for rank in ranks:
            step = trace_event(f"ProfilerStep#{10 * number}") | {"cat": "user_annotation"}
            op = trace_event(f"{window} {rank}")
            time = {"ts": 1000 * number, "dur": 100}
            write_window(folder, rank, number, [one | time for one in (step, op)])


NAMES = "select name from events where kind = 'op' order by name"


def test_the_windows_that_most_ranks_have(folder, ask):
    windows(folder, w1=[0, 1], w2=[0, 1], w3=[0])
    write(folder, 0, one_rank(end(1)))
    request = capture.request_file(folder, 1)
    request.parent.mkdir()
    request.write_bytes(capture.WindowRequest(1, 5, 3).to_bytes())
    done = ingest([folder], folder.parent, workers=1)
    assert ask(NAMES, again=False) == [("w1 0",), ("w1 1",), ("w2 0",), ("w2 1",)]
    [(third, why)] = done.skipped
    assert third == str(folder / "rank-*.w0003.json.gz")
    assert why == (
        "1 trace of window 3, but other windows have 2. To read it into a separate run: "
        f"lostflops ingest '{folder}/rank-*.w0003.json.gz' -o {folder.parent}-w0003"
    )
    other = folder.parent.with_name("run-w0001")
    ingest([f"{folder}/rank-*.w0001.json.gz"], other, workers=1)
    with Run.open(other) as run:
        assert run.sql(NAMES).fetchall() == [("w1 0",), ("w1 1",)]


def test_windows_of_a_rank_are_one_timeline(folder, ask):
    windows(folder, w1=[0, 1], w2=[0, 1])
    assert ask("select rank, event, lane, step from events where kind = 'op' order by rank, event") == [
        (0, 1, 0, 10), (0, 3, 0, 20), (1, 1, 0, 10), (1, 3, 0, 20),
    ]  # fmt: skip
    assert ask("select rank, lane from lanes order by rank", again=False) == [(0, 0), (1, 0)]
    assert ask("select rank, step from steps order by all", again=False) == [(0, 10), (0, 20), (1, 10), (1, 20)]
    assert ask("select events from ranks", again=False) == [(4,), (4,)]
    assert ask("select count(*) from stats where what = 'missing_steps'", again=False) == [(0,)]


def test_only_the_newest_of_very_many_windows_are_taken(folder, ask):
    for window in range(1, MOST_WINDOWS + 3):
        windows(folder, **{f"w{window}": [0]})
        os.utime(capture.trace_file(folder, 0, window), ns=(window, window))
    assert ask("select min(step), count(*) from steps") == [(30, MOST_WINDOWS)]


def test_a_newer_window_joins_the_older_on_all_ranks(folder, ask):
    windows(folder, w1=[0, 1, 2])
    write(folder, 2, frames(2, "a", [session(2, 3), collectives((1, 1), ranks=(0, 1, 2)), end(1)]))
    assert len(ask(NAMES)) == 3
    windows(folder, w2=[0, 1])
    assert len(ask(NAMES)) == 3  # rank 2 still writes its own
    windows(folder, w2=[2])
    joined = [(f"w{window} {rank}",) for window in (1, 2) for rank in range(3)]
    assert ask(NAMES) == joined
    assert ask(NAMES) == joined
    assert ask("select rank, count(distinct event) from events group by 1 order by 1", again=False) == [
        (0, 4), (1, 4), (2, 4),
    ]  # fmt: skip
    assert ask("select group_id from groups where rank = 2", again=False) == [("0@0-2",)]
    windows(folder, w3=[0, 1, 2])
    assert ask(NAMES) == [(f"w{window} {rank}",) for window in (1, 2, 3) for rank in range(3)]


def test_a_window_that_an_older_attempt_reached_is_left_out(folder, ask):
    """The second attempt writes window 0 over that of the first and ends before window 1."""
    first = frames(0, "a", [session(0, wall=0), step(0, 10, PHASES)])
    again = session(0, wall=80 * MS, restart=1)
    write(folder, 0, first, frames(0, "b", [again, step(0, 81 * MS, PHASES), end(99 * MS)]))
    for window, start in ((0, 81 * MS), (1, 10_000)):
        event = trace_event(f"ProfilerStep#{window}") | {"cat": "user_annotation", "ts": (BASE + start) // 1000}
        write_window(folder, 0, window, [event])
    done = ingest([folder], folder.parent, workers=1)
    assert [Path(path).name for path, _ in done.skipped] == ["rank-00000.w0001.json.gz"]
    assert ask("select step from steps", again=False) == [(0,)]


def test_a_trace_that_an_older_attempt_left_is_left_out(folder, ask):
    """Two ranks, then one: the second attempt writes its window 0 over that of rank 0."""
    shrinking(folder)
    starts = {0: 81 * MS, 1: 10_000}
    for rank, start in starts.items():
        event = trace_event("ProfilerStep#0") | {"cat": "user_annotation"}
        write_window(folder, rank, 0, [event | {"ts": (BASE + start) // 1000}])
    for _ in range(2):
        done = ingest([folder], folder.parent, workers=1)
        assert [Path(path).name for path, _ in done.skipped] == ["rank-00001.w0000.json.gz"]
        assert ask("select rank from steps", again=False) == [(0,)]
        assert ask("select formats from ranks order by rank", again=False) == [("kineto,capture",), ("capture",)]
        assert ask("select distinct rank from events", again=False) == [(0,)]


def test_a_trace_that_is_left_out_takes_no_group_with_it(folder, ask):
    """The trace of the older attempt and the capture both list the group; the capture's row stays."""
    config = {"pg_config": [{"pg_name": "0", "ranks": [0, 1], "pg_desc": "default_pg"}]}
    for rank, start in enumerate((81 * MS, 10_000)):
        first = frames(rank, f"a{rank}", [session(rank, wall=rank), collectives((1, 11)), step(0, 10, PHASES)])
        again = session(rank, wall=80 * MS, restart=1)
        write(folder, rank, first, frames(rank, f"b{rank}", [again, step(0, 81 * MS, PHASES), end(99 * MS)]))
        event = trace_event("ProfilerStep#0") | {"cat": "user_annotation", "ts": (BASE + start) // 1000}
        path = write_window(folder, rank, 0, [event])
        document = json.loads(gzip.decompress(path.read_bytes()))
        document["distributedInfo"] |= config
        path.write_bytes(gzip.compress(json.dumps(document).encode()))
    assert ask("select rank, group_id from groups order by rank") == [(0, "0@0-1"), (1, "0@0-1")]
    assert ask("select distinct rank from events", again=False) == [(0,)]


def test_one_trace_of_a_window_leaves_the_others_alone(folder, ask):
    windows(folder, w1=[0, 1])
    ask(NAMES)
    ingest([capture.trace_file(folder, 0, 1)], folder.parent, workers=1)
    assert ask(NAMES, again=False) == [("w1 0",), ("w1 1",)]


def test_a_group_that_the_trace_lists_is_kept_once(folder, ask):
    info = {"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0", "ranks": [0, 1], "pg_desc": "default_pg"}]}}
    path = write_window(folder, 0, 1, [trace_event("op")])
    document = json.loads(gzip.decompress(path.read_bytes())) | info
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    write(folder, 0, frames(0, "a", [session(0), collectives((1, 1)), end(9)]))
    assert ask("select group_id, formats from groups join ranks using (rank)") == [("0@0-1", "kineto,capture")]


@pytest.mark.parametrize(("backend", "expected"), [("gloo", [(7, "0@0-1"), (8, "0@0-1")]), ("nccl", [])])
def test_gloo_collectives_of_a_trace_get_their_group_from_the_ring(folder, ask, backend, expected):
    """The profiler runs from 130 ms on; calls 7 and 8 are enqueued then, call 6 before and call 9 behind the trace."""
    title = f"{backend}:all_reduce"
    entries = [[seq, "0", seq, title, False, 400, 400, BASE + seq * 20 * MS] for seq in range(1, 10)]
    ring = {"kind": "collectives", "entries": entries, "groups": {"0": {"ranks": [0, 1]}}, "lost": 0}
    write(folder, 0, frames(0, "a", [session(0), ring, end(300 * MS)]))
    base = BASE // 1000
    span = trace_event("PyTorch Profiler (0)") | {"cat": "Trace", "ts": base + 130_000, "dur": 50_000}
    calls = [trace_event("gloo:all_reduce") | {"ts": base + seq * 20_000 + 10, "dur": 500, "tid": 9} for seq in (7, 8)]
    write_window(folder, 0, 0, [span, trace_event("op") | {"ts": base + 130_001}, *calls])
    query = "select seq, group_id from collectives where group_id is not null order by seq"
    assert ask(query) == expected
    missing = dict(ask("select what, count from stats", again=False)).get("collectives_without_group", 0)
    assert missing == 2 - len(expected)


def test_the_folder_of_a_run_may_hold_a_capture_and_nothing_else(folder, ask):
    path = write(folder, 0, one_rank(end(1)))
    with pytest.raises(NotARun, match=f"lostflops ingest {folder} -o {folder.parent}"):
        Run.open(folder.parent)
    assert ask("select count(*) from attempts") == [(1,)]
    before = path.read_bytes()
    ingest([folder.parent], folder.parent, workers=1)
    ingest([folder.parent], folder.parent.with_name("copy"), workers=1)
    assert path.read_bytes() == before
    (folder.parent / "run.json").unlink()
    (folder.parent / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"notes\.txt"):
        ingest([folder], folder.parent, workers=1)
    assert path.read_bytes() == before


def test_an_ingest_that_fails_leaves_the_capture(folder):
    write(folder, 0, b"\x89LFCxx")
    with pytest.raises(BrokenSource):
        ingest([folder], folder.parent, workers=1)
    assert capture.rank_file(folder, 0).read_bytes() == b"\x89LFCxx"
    assert [path.name for path in folder.parent.iterdir()] == ["capture"]
