"""Traces into a run: what is read, what is kept, what is refused."""

import gzip
import json
import os
import threading
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from lostflops.core.errors import BrokenSource, LostflopsError, RankConflict, SourceError, UnknownFormat, UsageError
from lostflops.ingest import ingest, rounds, tasks
from lostflops.ingest.find.captures import MOST_WINDOWS
from lostflops.store import commit
from lostflops.store.manifest import load
from lostflops.store.run import Run
from lostflops.store.spread import processes, worker_process


def event(name, ts=1, cat="cpu_op", tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": 2, "args": args}


def at_rank(rank):
    return {"distributedInfo": {"rank": rank, "world_size": 4, "backend": "gloo"}}


@pytest.fixture
def four(traces):
    return [traces.write(f"rank{rank}.json", [event(f"op {rank}")]) for rank in range(4)]


@pytest.fixture
def read_files(monkeypatch):
    """Names of the files that a task read, in order; for one worker."""
    names = []

    def noted(task, on_read):
        names.extend(Path(file.path).name for file in task.files)
        return tasks.carry_out(task, on_read)

    monkeypatch.setattr(rounds, "WORK", replace(tasks.WORK, do=noted))
    return names


def ranges(monkeypatch, most, per_file):
    """Ranges of ranks from fewer ranks on than 256."""
    for name, value in (("MOST_SINGLE_RANKS", most), ("RANKS_PER_FILE", per_file)):
        monkeypatch.setattr(commit, name, value)
        monkeypatch.setattr(rounds, name, value)


NAMES = "select rank, name from events order by rank, start"


def test_a_folder_of_traces(traces, four):
    done = ingest([traces.folder], traces.run, workers=1)
    assert traces.ask(NAMES) == [(rank, f"op {rank}") for rank in range(4)]
    assert (done.ranks_added, done.ranks_replaced, done.ranks_unchanged) == ((0, 1, 2, 3), (), ())
    assert (done.run, done.events, done.skipped) == (traces.run, 4, ())
    assert done.bytes_read == sum(path.stat().st_size for path in four)
    assert traces.ask("select rank, source, source_bytes from ranks order by rank") == [
        (rank, str(path), path.stat().st_size) for rank, path in enumerate(four)
    ]


def test_ranks_are_added_without_reading_the_old_ones(traces, four, read_files):
    ingest(four[:2], traces.run, workers=1)
    done = ingest(four, traces.run, workers=1)
    assert read_files == ["rank0.json", "rank1.json", "rank2.json", "rank3.json"]
    assert (done.ranks_added, done.ranks_unchanged) == ((2, 3), (0, 1))
    assert traces.ask(NAMES) == [(rank, f"op {rank}") for rank in range(4)]


def test_the_same_files_again_change_nothing(traces, four, read_files):
    ingest(four, traces.run, workers=1)
    before = load(traces.run), {path: path.stat().st_mtime_ns for path in traces.run.rglob("*.parquet")}
    # Same size and time of change, other content: whoever opens the file again shows it.
    status = four[0].stat()
    four[0].write_bytes(four[0].read_bytes().replace(b"op 0", b"OP 0"))
    os.utime(four[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    done = ingest(four, traces.run, workers=1)
    assert (load(traces.run), {path: path.stat().st_mtime_ns for path in traces.run.rglob("*.parquet")}) == before
    assert (done.ranks_added, done.ranks_replaced, done.ranks_unchanged) == ((), (), (0, 1, 2, 3))
    assert (done.events, done.bytes_read) == (0, 0)
    assert len(read_files) == 4
    assert traces.ask(NAMES)[0] == (0, "op 0")


def test_nothing_is_left_by_an_ingest_that_had_nothing_to_do(traces, four):
    ingest(four, traces.run, workers=1)
    before = sorted(traces.run.rglob("*"))
    ingest(four, traces.run, workers=1)
    assert sorted(traces.run.rglob("*")) == before


def test_a_touched_file_is_not_read_as_a_trace_again(traces, four, read_files):
    ingest(four, traces.run, workers=1)
    os.utime(four[1], ns=(1, 1))
    done = ingest(four, traces.run, workers=1)
    assert (done.ranks_unchanged, len(read_files), load(traces.run).generation) == ((0, 1, 2, 3), 4, 1)


def test_a_file_that_moved_is_known_by_its_content(traces, four, read_files):
    ingest(four, traces.run, workers=1)
    four[2].rename(traces.folder / "rank2-renamed.json")
    done = ingest([traces.folder], traces.run, workers=1)
    assert (done.ranks_unchanged, len(read_files)) == ((0, 1, 2, 3), 4)


def test_a_changed_file_replaces_what_was_read_from_it(traces, four, read_files):
    ingest(four, traces.run, workers=1)
    traces.write("rank1.json", [event("new"), event("newer", 5)])
    done = ingest(four, traces.run, workers=1)
    assert read_files[4:] == ["rank1.json"]
    assert (done.ranks_added, done.ranks_replaced, done.ranks_unchanged) == ((), (1,), (0, 2, 3))
    assert traces.ask(NAMES) == [(0, "op 0"), (1, "new"), (1, "newer"), (2, "op 2"), (3, "op 3")]
    assert traces.ask("select rank, events from ranks order by rank") == [(0, 1), (1, 2), (2, 1), (3, 1)]


def test_a_changed_file_may_have_become_another_rank(traces):
    path = traces.write("trace.json", [event("a")], **at_rank(1))
    ingest([path], traces.run, workers=1)
    traces.write("trace.json", [event("b")], **at_rank(2))
    ingest([path], traces.run, workers=1)
    assert traces.ask(NAMES) == [(2, "b")]


def test_a_changed_file_keeps_the_rank_that_was_assigned_to_it(traces):
    path = traces.write("mine.json", [event("a")])
    assert ingest([path], traces.run, workers=1).ranks_added == (0,)
    traces.write("mine.json", [event("b")])
    done = ingest([path], traces.run, workers=1)
    assert traces.ask(NAMES) == [(0, "b")]
    assert (done.ranks_added, done.ranks_replaced) == ((), (0,))


def test_equal_content_under_the_name_of_another_rank_is_another_rank(traces):
    ingest([traces.write("rank0.json", [event("same")])], traces.run, workers=1)
    ingest([traces.write("rank1.json", [event("same")])], traces.run, workers=1)
    assert traces.ask(NAMES) == [(0, "same"), (1, "same")]


@pytest.mark.parametrize("together", [True, False])
def test_two_files_that_claim_one_rank_are_refused_with_both_names(traces, together):
    one = traces.write("a.json", [event("a")], **at_rank(3))
    two = traces.write("b.json", [event("b")], **at_rank(3))
    if not together:
        ingest([one], traces.run, workers=1)
    with pytest.raises(RankConflict, match="rank 3") as refusal:
        ingest([one, two], traces.run, workers=1)
    assert str(one) in str(refusal.value)
    assert str(two) in str(refusal.value)
    if together:
        assert not traces.run.exists()
    else:
        assert traces.ask(NAMES) == [(3, "a")]


def profiled(step, time, pid=1):
    """A step of one op, at `time` in us."""
    around = event(f"ProfilerStep#{step}", time, "user_annotation") | {"dur": 9}
    return [one | {"pid": pid} for one in (around, event(f"op {step}", time + 1))]


STEPS = "select rank, step, count(event) from steps join events using (rank, step) group by all order by all"


@pytest.mark.parametrize("recorded", [{"distributedInfo": {"rank": 3}}, {}], ids=["with a rank", "without"])
def test_files_that_a_profiler_left_of_one_process_are_windows_of_one_rank(traces, recorded):
    rank = 3 if recorded else 0
    one = traces.write("node_7.1698955063520869240.pt.trace.json", profiled(5, 100), **recorded)
    two = traces.write("node_7.1698955063520999999.pt.trace.json", profiled(12, 300), **recorded)
    ingest([one], traces.run, workers=1)
    ingest([traces.folder], traces.run, workers=1)
    assert traces.ask(STEPS) == [(rank, 5, 2), (rank, 12, 2)]
    assert traces.ask("select count(*), count(distinct event) from events") == [(4, 4)]
    other = traces.run.with_name("other")
    ingest([two, one], other, workers=1)
    with Run.open(other) as run:
        assert run.sql(STEPS).fetchall() == [(rank, 5, 2), (rank, 12, 2)]


def test_memory_is_that_of_the_last_window(traces):
    for number in (1, 2):
        freed = {"ph": "i", "s": "t", "pid": 1, "tid": 1, "ts": 100 * number + 1, "name": "[memory]",
                 "args": {"Addr": 8, "Bytes": 64 * number, "Device Type": 0, "Device Id": -1, "Total Allocated": 64,
                          "Total Reserved": 0}}  # fmt: skip
        traces.write(f"{number}.json", [*profiled(10 * number, 100 * number), freed], **at_rank(3))
    ingest([traces.folder], traces.run, workers=1)
    assert traces.ask("select step, bytes, lane from memory") == [(20, 128, 0)]
    assert traces.ask("select count(*) from steps") == [(2,)]


def test_only_the_newest_of_very_many_files_of_a_rank_are_taken(traces):
    for number in range(MOST_WINDOWS + 2):
        path = traces.write(f"{number}.json", profiled(10 * number, 100 * number), **at_rank(3))
        os.utime(path, ns=(number, number))
        if number >= MOST_WINDOWS - 1:
            ingest([traces.folder], traces.run, workers=1)
    assert traces.ask("select min(step), count(*) from steps") == [(20, MOST_WINDOWS)]
    assert traces.ask("select count(*), count(distinct event) from events") == [(2 * MOST_WINDOWS, 2 * MOST_WINDOWS)]


def test_files_of_two_processes_are_not_windows_of_one_rank(traces):
    traces.write("a.json", profiled(5, 100), **at_rank(3))
    traces.write("b.json", profiled(12, 300, pid=99), **at_rank(3))
    with pytest.raises(RankConflict):
        ingest([traces.folder], traces.run, workers=1)


def test_a_window_with_the_steps_of_a_newer_one_is_left_out(traces):
    first = traces.write("a.json", profiled(5, 100), **at_rank(3))
    traces.write("b.json", profiled(5, 300), **at_rank(3))
    done = ingest([traces.folder], traces.run, workers=1)
    assert [path for path, _ in done.skipped] == [str(first)]
    assert traces.ask(STEPS) == [(3, 5, 2)]


def test_a_claim_at_the_end_of_the_file_counts_too(traces):
    one = traces.write("rank3.json", [event("a")])
    two = traces.folder / "b.json"
    two.write_text(json.dumps({"traceEvents": [event("b")], **at_rank(3)}))
    with pytest.raises(RankConflict):
        ingest([one, two], traces.run, workers=1)
    assert not traces.run.exists()


def test_a_recorded_rank_goes_before_an_assigned_one(traces):
    """`a` says nothing of its rank, `b` says 0 at its end: `a` has to take another one."""
    traces.write("a.json", [event("a")])
    (traces.folder / "b.json").write_text(json.dumps({"traceEvents": [event("b")], **at_rank(0)}))
    ingest([traces.folder], traces.run, workers=1)
    assert traces.ask("select rank, rank_source, name from ranks join events using (rank) order by rank") == [
        (0, "recorded", "b"),
        (1, "assigned", "a"),
    ]


def test_replace_puts_the_new_file_in_the_place_of_the_old(traces):
    one = traces.write("a.json", [event("a")], **at_rank(3))
    two = traces.write("b.json", [event("b")], **at_rank(3))
    ingest([one], traces.run, workers=1)
    done = ingest([two], traces.run, workers=1, replace=True)
    assert (done.ranks_added, done.ranks_replaced) == ((), (3,))
    assert traces.ask(
        "select rank, source, name from ranks join events using (rank)".replace("source", "ranks.source")
    ) == [(3, str(two), "b")]


def test_replace_does_not_settle_a_quarrel_between_new_files(traces):
    traces.write("a.json", [event("a")], **at_rank(3))
    traces.write("b.json", [event("b")], **at_rank(3))
    with pytest.raises(RankConflict):
        ingest([traces.folder], traces.run, workers=1, replace=True)


def test_where_the_rank_comes_from(traces):
    traces.write("rank5.json", [event("recorded before the name")], **at_rank(9))
    traces.write("rank6_trace.json", [event("name")])
    traces.write("first.json", [event("assigned")])
    traces.write("second.json", [event("assigned")])
    ingest([traces.folder], traces.run, workers=1)
    query = "select rank, rank_source, e.name from ranks join events e using (rank) order by rank"
    assert traces.ask(query) == [
        (0, "assigned", "assigned"),
        (1, "assigned", "assigned"),
        (6, "file name", "name"),
        (9, "recorded", "recorded before the name"),
    ]
    assert traces.ask("select rank, effect, count from stats where what = 'rank_assigned' order by rank") == [
        (0, "guessed", 1),
        (1, "guessed", 1),
    ]


def test_a_folder_may_hold_other_things(traces, four):
    (traces.folder / "config.json").write_text('{"lr": 1}')
    (traces.folder / "core").write_bytes(b"\x7fELF\0\0")
    (traces.folder / "empty.json").touch()
    (traces.folder / "half.json.gz").write_bytes(b"\x1f\x8b\x08\x00")
    done = ingest([traces.folder], traces.run, workers=1)
    assert done.ranks_added == (0, 1, 2, 3)
    assert sorted(Path(path).name for path, reason in done.skipped if reason) == [
        "config.json",
        "core",
        "empty.json",
        "half.json.gz",
    ]


def test_traces_beside_a_foreign_run_json_are_found(traces, four):
    """`run.json` is a name that others use too; only a manifest of ours makes a folder a run."""
    (traces.folder / "run.json").write_text('{"experiment": 7}')
    assert ingest([traces.folder], traces.run, workers=1).ranks_added == (0, 1, 2, 3)


def test_a_file_that_is_named_must_be_known(traces):
    other = traces.folder / "config.json"
    other.write_text('{"lr": 1}')
    with pytest.raises(UnknownFormat, match=r"config\.json"):
        ingest([other], traces.run, workers=1)
    with pytest.raises(UsageError, match="does not exist"):
        ingest([traces.folder / "nowhere.json"], traces.run, workers=1)
    with pytest.raises(UsageError, match="no traces"):
        ingest([traces.folder], traces.run, workers=1)
    assert not traces.run.exists()


def test_globs_and_files_given_twice(traces, four):
    traces.write("deep/er/rank7.json", [event("op 7")])
    assert ingest([f"{traces.folder}/rank[01].json", four[0]], traces.run, workers=1).ranks_added == (0, 1)
    assert ingest([f"{traces.folder}/**/*.json"], traces.run, workers=1).ranks_added == (2, 3, 7)


def test_a_file_whose_name_looks_like_a_pattern(traces):
    path = traces.write("rank0 [1].json", [event("a")])
    assert ingest([path], traces.run, workers=1).ranks_added == (0,)


def test_a_run_among_the_traces_is_not_ingested(traces, four):
    traces.run = traces.folder / "run"
    ingest([traces.folder], traces.run, workers=1)
    done = ingest([traces.folder], traces.run, workers=1)
    assert (done.ranks_unchanged, done.skipped) == ((0, 1, 2, 3), ())


def test_traces_in_a_folder_called_data_survive(tmp_path):
    """`lostflops ingest project/data -o project` must not take the traces for leftovers of its own."""
    trace = tmp_path / "project" / "data" / "rank0.json"
    trace.parent.mkdir(parents=True)
    trace.write_text(json.dumps({"traceEvents": [event("a")]}))
    with suppress(LostflopsError):
        ingest([trace.parent], tmp_path / "project", workers=1)
    assert trace.exists()


def test_workers_make_no_difference(traces, four):
    traces.write("rank9.json.gz", [event(f"op {i}", i, tid=i % 3) for i in range(50)], **at_rank(9))
    ingest([traces.folder], traces.run, workers=1)
    one = traces.tables()
    traces.run = traces.run.with_name("other")
    ingest([traces.folder], traces.run, workers=2)
    assert traces.tables() == one


def test_plain_and_gzip_give_the_same_rows(traces):
    events = [event(f"op {i}", i) for i in range(100)]
    ingest([traces.write("rank0.json", events)], traces.run, workers=1)
    plain = traces.tables()
    traces.run = traces.run.with_name("other")
    ingest([traces.write("rank0.json.gz", events)], traces.run, workers=1)
    assert traces.tables() == plain


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_never_goes_back_and_ends_at_the_end(traces, four, workers):
    seen = []
    ingest(four, traces.run, workers=workers, progress=seen.append)
    total = sum(path.stat().st_size for path in four)
    assert {(p.files_total, p.bytes_total) for p in seen} == {(4, total)}
    for before, after in pairwise(seen):
        assert before.files_done <= after.files_done
        assert before.bytes_done <= after.bytes_done
        assert before.seconds <= after.seconds
    assert (seen[-1].files_done, seen[-1].bytes_done) == (4, total)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_progress_callback_that_fails_stops_the_ingest(traces, four, workers):
    """Not a hang: the caller gets its exception, or one of ours, and the run is not made."""
    ended = []

    def fail(_):
        raise ZeroDivisionError

    def attempt():
        try:
            ingest(four, traces.run, workers=workers, progress=fail)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            ended.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda _: None)
        thread.start()
        thread.join(timeout=8)
    assert ended, "still waiting after 8 s"
    assert isinstance(ended[0], (ZeroDivisionError, LostflopsError))
    assert not traces.run.exists()


@pytest.mark.parametrize(
    ("death", "observed"),
    [
        ("import os; os._exit(9)", "(exit code 9)"),
        ("import os; os.kill(os.getpid(), 9)", "(killed by SIGKILL)"),
        ("import os; os.kill(os.getpid(), 11)", "(killed by SIGSEGV)"),
        ("print('hello')", "(exit code 0)"),
        ("raise SystemExit(3)", "(exit code 3)"),
        ("import os, sys; os.write(int(sys.argv[3]), b'hello\\n')", "(exit code 0)"),
    ],
)
def test_a_worker_that_dies_is_an_error_of_ours(traces, four, monkeypatch, death, observed):
    monkeypatch.setattr(worker_process, "count_memory_kills", lambda: 0)  # others on this machine may run out of memory
    monkeypatch.setattr(worker_process, "_WORKER", death)
    ended = []

    def attempt():
        try:
            ingest(four, traces.run, workers=2)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            ended.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda _: None)
        thread.start()
        thread.join(timeout=8)
    assert ended, "still waiting after 8 s"
    assert isinstance(ended[0], BrokenSource), repr(ended[0])
    assert "died" in str(ended[0])
    assert observed in str(ended[0])
    assert not traces.run.exists()


def test_a_worker_that_is_dead_before_its_first_task_is_an_error_of_ours(traces, four, monkeypatch):
    """What could not be written to it must not raise a second time when its pipe is closed."""
    start = processes.WorkerProcess

    def start_and_bury():
        process = start()
        process.wait()
        return process

    monkeypatch.setattr(worker_process, "_WORKER", "")
    monkeypatch.setattr(processes, "WorkerProcess", start_and_bury)
    with pytest.raises(BrokenSource, match="died"):
        ingest(four, traces.run, workers=2)
    assert not traces.run.exists()


def test_what_a_killed_worker_had_in_hand_is_done_by_another(traces, four, tmp_path, monkeypatch):
    """Two workers are killed, each over its first file; the run is the one that nobody killed anything of."""
    deaths = tmp_path / "deaths"
    for place in ("first", "second"):
        (deaths / place).mkdir(parents=True)
    dying = (
        "import os, pathlib, sys\n"
        f"for place in pathlib.Path({str(deaths)!r}).iterdir():\n"
        "    try:\n"
        "        place.rmdir()\n"  # of several workers one alone takes it
        "    except FileNotFoundError:\n"
        "        continue\n"
        "    os.read(int(sys.argv[2]), 1)\n"  # it has an order
        "    os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setattr(worker_process, "_WORKER", dying + worker_process._WORKER)
    heard = []
    done = ingest(four, traces.run, workers=2, progress=heard.append)
    assert list(deaths.iterdir()) == []
    assert done.ranks_added == (0, 1, 2, 3)
    assert heard[-1].bytes_done == heard[-1].bytes_total
    alone = ingest(four, tmp_path / "alone", workers=1)
    assert alone.events == done.events
    with Run.open(traces.run) as killed, Run.open(tmp_path / "alone") as whole:
        for name in ("events", "collectives", "steps", "lanes"):
            rows = f"select * from {name} order by all"
            assert killed.sql(rows).fetchall() == whole.sql(rows).fetchall()


def test_an_error_in_a_worker_arrives_as_what_it_was(traces, four):
    bad = traces.folder / "rank8.json"
    bad.write_text('{"deviceProperties": [], "x": 1}')
    for workers in (1, 2):
        with pytest.raises(BrokenSource, match=r"rank8\.json.*traceEvents"):
            ingest([*four, bad], traces.run, workers=workers)
        assert not traces.run.exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_broken_file_in_a_folder_does_not_cost_the_others(traces, four, workers):
    """Of thousands of files one is half written: the others are read, and the summary says which is missing."""
    bad = traces.folder / "rank8.json"
    bad.write_text('{"deviceProperties": [], "x": 1}')
    done = ingest([traces.folder], traces.run, workers=workers)
    assert done.ranks_added == (0, 1, 2, 3)
    ((path, reason),) = done.skipped
    assert path == str(bad)
    assert "traceEvents" in reason


def test_nothing_but_broken_files_is_an_error(traces):
    (traces.folder / "rank8.json").write_text('{"deviceProperties": [], "x": 1}')
    with pytest.raises(BrokenSource, match="traceEvents"):
        ingest([traces.folder], traces.run, workers=1)
    assert not traces.run.exists()


def test_a_failed_ingest_leaves_no_folders(traces, tmp_path):
    bad = traces.folder / "rank8.json"
    bad.write_text('{"deviceProperties": [], "x": 1}')
    with pytest.raises(BrokenSource):
        ingest([bad], tmp_path / "new" / "deep" / "run", workers=1)
    assert not (tmp_path / "new").exists()


def test_an_assigned_rank_gives_way_to_one_recorded_at_the_end_of_a_gzip(traces):
    traces.write("a.json.gz", [event("a")])
    with gzip.open(traces.folder / "b.json.gz", "wt") as file:
        json.dump({"traceEvents": [event("b")], **at_rank(0)}, file)
    ingest([traces.folder], traces.run, workers=1)
    assert traces.ask(NAMES) == [(0, "b"), (1, "a")]
    named = {file.path for files in load(traces.run).files.values() for file in files}
    assert {str(path.relative_to(traces.run)) for path in (traces.run / "data").rglob("*.parquet")} == named


def test_two_files_of_one_command_do_not_replace_each_other(traces):
    one = traces.write("a.json", [event("a")], **at_rank(3))
    two = traces.write("b.json", [event("b")], **at_rank(3))
    ingest([one], traces.run, workers=1)
    with pytest.raises(RankConflict):
        ingest([one, two], traces.run, workers=1, replace=True)


def test_a_conflict_with_the_run_is_found_before_anything_is_read(traces, read_files):
    ingest([traces.write("a.json", [event("a")], **at_rank(3))], traces.run, workers=1)
    read_files.clear()
    with pytest.raises(RankConflict):
        ingest([traces.write("b.json", [event("b")], **at_rank(3))], traces.run, workers=1)
    assert list(read_files) == []


def test_many_ranks_with_dumps_are_completed_together(traces, monkeypatch):
    ranges(monkeypatch, most=3, per_file=4)
    for rank in range(10):
        group = {"pg_name": "0", "pg_desc": "default_pg", "ranks": list(range(10))}
        traces.write(f"rank{rank}.json", GLOO_TRACE, distributedInfo={"rank": rank, "pg_config": [group]})
        write_dump(traces, [1, 2, 3], rank=rank)
    ingest([traces.folder], traces.run, workers=1)
    found = traces.ask(
        "select rank, count(*), count(seq), count(group_id) from collectives group by rank order by rank"
    )
    assert found == [(rank, *found[0][1:]) for rank in range(10)]
    assert found[0][2] > 0


def test_a_file_that_vanishes_is_an_error_of_ours(traces, four, monkeypatch):
    find = ingest.__globals__["find_sources"]

    def find_and_lose(*arguments):
        found = find(*arguments)
        four[1].unlink()
        return found

    monkeypatch.setitem(ingest.__globals__, "find_sources", find_and_lose)
    with pytest.raises(SourceError):
        ingest(four, traces.run, workers=1)
    assert not traces.run.exists()


def test_a_truncated_file_gives_its_prefix_and_says_so(traces):
    path = traces.write("rank0.json", [event("a", 1), event("b", 5), event("c", 9)])
    path.write_bytes(path.read_bytes()[: path.read_bytes().index(b'"c"')])
    ingest([path], traces.run, workers=1)
    assert traces.ask(NAMES) == [(0, "a"), (0, "b")]
    assert traces.ask("select count from stats where what = 'truncated'") == [(1,)]


@pytest.mark.parametrize("lost", [1, 20, 200])
def test_a_truncated_gzip_gives_its_prefix_and_says_so(traces, lost):
    path = traces.write("rank0.json.gz", [event(f"op {i * 7919 % 1000}", i) for i in range(2_000)])
    path.write_bytes(path.read_bytes()[:-lost])
    ingest([path], traces.run, workers=1)
    names = [name for _, name in traces.ask(NAMES)]
    assert names == [f"op {i * 7919 % 1000}" for i in range(len(names))]
    assert len(names) > 500
    assert traces.ask("select count from stats where what = 'truncated'") == [(1,)]


# --- a trace and its Flight Recorder dump -------------------------------------------------------------------------


def dump(sequence, size=40):
    """What a gloo rank with one group enqueued: one all-reduce of `size` elements per number of `sequence`."""
    entries = [
        {
            "record_id": i,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "op_id": number,
            "profiling_name": "gloo:all_reduce",
            "time_created_ns": 1_000 * (10 * i + 5),
            "input_sizes": [[size]],
            "input_dtypes": ["Float"],
            "output_sizes": [[size]],
            "output_dtypes": ["Float"],
            "state": "completed",
            "is_p2p": False,
        }
        for i, number in enumerate(sequence)
    ]
    return {
        "version": "2.9",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "entries": entries,
    }


GLOO_TRACE = [
    event("start", 0),
    *(event("gloo:all_reduce", 10 * i + 6, tid=7, **{"Input Dims": [[40]], "Input type": ["float"]}) for i in range(3)),
]
GROUPED = {"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}]}}
ORDER = "select group_id, seq, ordinal, order_source from collectives order by start"


def write_dump(traces, sequence, rank=0, **more):
    path = traces.folder / f"nccl_trace_rank_{rank}"
    path.write_text(json.dumps(dump(sequence, **more)))
    return path


@pytest.mark.parametrize("order", ["together", "trace first", "dump first"])
def test_a_trace_and_a_dump_complete_each_other_in_any_order(traces, order):
    trace = traces.write("rank0.json", GLOO_TRACE, **GROUPED)
    both = [trace, write_dump(traces, [1, 2, 3])]
    for paths in {"together": [both], "trace first": [both[:1], both[1:]], "dump first": [both[1:], both[:1]]}[order]:
        ingest(paths, traces.run, workers=1)
    assert traces.ask(ORDER)[:2] == [("0@0-1", 1, 0, "flight_recorder"), ("0@0-1", 2, 1, "flight_recorder")]
    found = traces.tables()
    traces.run = traces.run.with_name("other")
    ingest(both, traces.run, workers=2)
    assert found == traces.tables()


def test_a_dump_that_changed_leaves_nothing_of_the_old_one(traces):
    trace = traces.write("rank0.json", GLOO_TRACE, **GROUPED)
    ingest([trace, write_dump(traces, [1, 2, 3])], traces.run, workers=1)
    changed = write_dump(traces, [7, 8, 9], size=41)  # sizes that fit no event: nothing can be told any more
    ingest([changed], traces.run, workers=1)
    after = traces.tables()
    traces.run = traces.run.with_name("other")
    ingest([trace, changed], traces.run, workers=1)
    assert after["collectives"] == traces.tables()["collectives"]
    assert after == traces.tables()


def test_a_trace_that_changed_is_completed_again(traces):
    trace = traces.write("rank0.json", GLOO_TRACE, **GROUPED)
    known = write_dump(traces, [1, 2, 3])
    ingest([trace, known], traces.run, workers=1)
    traces.write("rank0.json", GLOO_TRACE[:2], **GROUPED)
    ingest([trace, known], traces.run, workers=1)
    after = traces.tables()
    traces.run = traces.run.with_name("other")
    ingest([trace, known], traces.run, workers=1)
    assert after == traces.tables()


def test_many_ranks_share_files_and_one_can_be_replaced(traces, monkeypatch):
    ranges(monkeypatch, most=3, per_file=4)
    for rank in range(9):
        traces.write(f"rank{rank}.json", [event(f"op {rank}")])
    ingest([traces.folder], traces.run, workers=1)
    assert len(load(traces.run).files["events"]) < 9
    traces.write("rank5.json", [event("new"), event("newer", 9)])
    ingest([traces.folder], traces.run, workers=1)
    expected = [(rank, f"op {rank}") for rank in range(9) if rank != 5] + [(5, "new"), (5, "newer")]
    assert traces.ask(NAMES) == sorted(expected)
    with Run.open(traces.run) as run:
        assert run.ranks == tuple(range(9))


@pytest.mark.parametrize("workers", [1, 2])
def test_ranges_of_ranks_make_no_difference(traces, monkeypatch, workers):
    """Read and written one by one, or many ranks together: the same rows."""
    nccl = {
        "Collective name": "allreduce",
        "Process Group Name": "5",
        "Process Group Ranks": "[0, 2]",
        "dtype": "Float",
    }
    for rank in range(7):
        host = [event(f"op {rank % 3}", ts, tid=ts % 2, **{"Input Dims": [[rank, ts % 3]]}) for ts in range(rank * 2)]
        steps = [event(f"ProfilerStep#{rank}", 0, "user_annotation")] if rank % 2 else []
        more = (
            [event("k", 5, "kernel", device=rank, stream=7, **(nccl if rank > 3 else {})), {"ph": "Z"}]
            if rank > 1
            else []
        )
        traces.write(f"rank{rank}.json", host + steps + more, **(at_rank(rank) if rank % 3 else {}))
    write_dump(traces, [1, 2, 3])
    ingest([traces.folder], traces.run, workers=workers)
    single = traces.tables()
    traces.run = traces.run.with_name("ranges")
    ranges(monkeypatch, most=2, per_file=3)
    ingest([traces.folder], traces.run, workers=workers)
    assert traces.tables() == single
    assert len(load(traces.run).files["events"]) < 7
