"""Windows that are reduced where they were recorded: what is left of them, and what is done where that fails."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lostflops.collect import capture, placing, reducer
from lostflops.collect.export import ExportOutcome, TraceForm, begin, outcome
from lostflops.collect.placing import finish, reduced_file
from lostflops.core.errors import UsageError
from lostflops.ingest import ingest
from lostflops.store.run import Run
from tests.collect.test_export import saving, wait_for

NAME = "rank-00003.w0001.json.gz"
TRACE = (
    b'{"schemaVersion": 1, "distributedInfo": {"rank": 3, "world_size": 4, "backend": "gloo"}, "traceEvents": [\n'
    b'{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 1, "tid": 1, "ts": 10, "dur": 90},\n'
    b'{"ph": "X", "cat": "python_function", "name": "/home/me/secret/train.py(12): main", "pid": 1, "tid": 1, '
    b'"ts": 20, "dur": 5}\n'
    b']}'
)  # fmt: skip
REDUCING = TraceForm(reducer=sys.executable)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "capture").mkdir()
    return tmp_path / "capture" / NAME


def written(trace: Path, form: TraceForm, content: bytes = TRACE) -> str | None:
    """Why it was not reduced."""
    plain = trace.with_suffix("")
    plain.write_bytes(content)
    return finish(plain, trace, reducer=form.reducer, keep_raw=form.keep_raw)


def begun(trace: Path, form: TraceForm, source: Path) -> ExportOutcome:
    """By a job that ends at once: while it is there, a reducer may wait for a busy machine."""
    saving(source, TRACE)
    program = (
        "import ctypes; from functools import partial; from pathlib import Path; from lostflops.collect import export\n"
        f"save = partial(ctypes.PyDLL(None).link, {str(source / 'source').encode()!r})\n"
        f"assert export.begin(save, Path({str(trace)!r}), export.TraceForm(*{tuple(form)!r}))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    wait_for(trace)
    return outcome(trace)


def names(trace: Path) -> list[str]:
    return sorted(path.name for path in trace.parent.iterdir())


def test_the_names_are_those_of_the_capture() -> None:
    trace = capture.trace_file(Path("capture"), 3, 1)
    assert trace.name == NAME
    assert reduced_file(trace) == capture.reduced_form(trace)


def test_a_window_is_left_as_rows_and_nothing_else(trace: Path, tmp_path: Path) -> None:
    assert begun(trace, REDUCING, tmp_path) == (True, True, None)
    assert names(trace) == ["rank-00003.w0001.parts"]
    assert b"secret" not in reduced_file(trace).read_bytes()
    ingest([trace.parent], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = run.sql("select rank, name, step, source from events order by start").fetchall()
        assert found == [(3, "ProfilerStep#3", 3, None), (3, "train.py(12): main", 3, "train.py(12): main")]


def test_a_raw_trace_is_kept_beside_if_asked(trace: Path) -> None:
    assert written(trace, TraceForm(sys.executable, keep_raw=True)) is None
    assert names(trace) == [NAME, "rank-00003.w0001.parts"]
    assert b'"name": "train.py(12): main"' in gzip.decompress(trace.read_bytes())


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


FAILURES = {
    "echo more >&2; echo there is no duckdb >&2; exit 1": "there is no duckdb",
    "kill -9 $$": "ended by signal 9",
    "exit 2": "it failed",
    "sleep 30": "it took over 0.3 s",
}


@pytest.mark.parametrize("how", FAILURES)
def test_where_it_cannot_be_reduced_the_trace_is_kept_and_the_reason_told(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(placing, "_REDUCING", 0.3)
    plain = trace.with_suffix("")
    plain.write_bytes(TRACE)
    assert finish(plain, trace, reducer=script(tmp_path, how)) == FAILURES[how]
    assert names(trace) == [NAME]
    assert gzip.decompress(trace.read_bytes()).endswith(b"]}")


def test_reducing_leaves_time_to_keep_the_trace(trace: Path, tmp_path: Path) -> None:
    """The process that does both ends when its time is over, whatever it does."""
    plain = trace.with_suffix("")
    plain.write_bytes(TRACE)
    signal.alarm(2)
    try:
        reason = finish(plain, trace, reducer=script(tmp_path, "exec sleep 30"))
    finally:
        left = signal.alarm(0)
    assert left
    assert (reason or "").startswith("it took over ")
    assert names(trace) == [NAME]


def test_a_process_that_is_killed_leaves_nothing_that_counts(trace: Path, tmp_path: Path) -> None:
    said = tmp_path / "pid"
    slow = script(tmp_path, f"echo $PPID > {said}.new; mv {said}.new {said}; exec sleep 60")
    assert begin(saving(tmp_path, TRACE), trace, TraceForm(slow))
    until(said.exists)
    assert len(names(trace)) == 3, "the lock, the trace and a folder to work in"
    with pytest.raises(UsageError, match="no traces"):
        ingest([trace.parent], tmp_path / "run", workers=1)
    os.kill(int(said.read_text()), signal.SIGKILL)
    wait_for(trace)
    assert outcome(trace) == (False, False, "the process that writes the trace ended early")
    assert names(trace) == []


def until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_packages_that_a_user_has_for_himself_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tmp_path / "plain.json"
    how = script(tmp_path, f'echo "$@" > {tmp_path / "said"}; exit 1')
    for hidden in ("", "1"):
        monkeypatch.setenv("PYTHONNOUSERSITE", hidden)
        plain.write_bytes(TRACE)
        finish(plain, tmp_path / NAME, reducer=how)
        flags = [word for word in (tmp_path / "said").read_text().split() if word.startswith("-")]
        asked = "import sys; print(sys.flags.no_user_site, sys.flags.ignore_environment, sys.flags.safe_path)"
        found = subprocess.run([sys.executable, *flags, "-c", asked], capture_output=True, check=True, text=True)
        assert found.stdout.split() == ["1" if hidden else "0", "1", "True"]


def test_the_reason_reaches_who_asked(trace: Path, tmp_path: Path) -> None:
    assert begun(trace, TraceForm(str(tmp_path / "no" / "python")), tmp_path) == (
        True,
        False,
        "not reduced: python: No such file or directory",
    )
    assert names(trace) == [NAME]


def test_a_trace_that_no_reader_understands_is_kept(trace: Path) -> None:
    assert written(trace, REDUCING, b'{"traceEvents": }') == "BrokenSource"
    assert names(trace) == [NAME]


def test_a_python_without_what_an_ingest_needs_says_so(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", reducer.__file__, str(tmp_path / "rank-0.json"), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    assert done.returncode == 1
    assert "is not installed where lostflops runs" in done.stderr


@pytest.mark.parametrize("first", [REDUCING, TraceForm()])
def test_what_an_earlier_attempt_left_in_the_other_form_goes(trace: Path, first: TraceForm) -> None:
    second = TraceForm() if first.reducer else REDUCING
    written(trace, first)
    written(trace, second)
    assert names(trace) == ["rank-00003.w0001.parts" if second.reducer else NAME]


def test_when_the_job_has_ended_nobody_is_given_way_to(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one starves; the second is told nothing of a job."""
    monkeypatch.setattr(placing, "_GRACE", 0.1)
    ended = subprocess.Popen(["true"])
    ended.wait()
    plain = trace.with_suffix("")
    plain.write_bytes(TRACE)
    starving = script(tmp_path, 'if [ "$6" = idle ]; then exec sleep 60; fi; echo reduced > "$5/reduced"')
    assert finish(plain, trace, reducer=starving, job=ended.pid) is None
    assert reduced_file(trace).read_bytes() == b"reduced\n"


def test_the_reducer_gives_way_to_everybody(tmp_path: Path) -> None:
    program = (
        "import os; from lostflops.collect import reducer; reducer.give_way()\n"
        "print(os.sched_getscheduler(0) == os.SCHED_IDLE or os.nice(0) == 19)\n"
        "print(open('/proc/self/oom_score_adj').read(), *open('/proc/self/autogroup'))"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, check=True, text=True, start_new_session=True)
    is_idle, adjusted, *group = done.stdout.split()
    assert (is_idle, adjusted) == ("True", "1000")
    assert group[-1] == "19"


def test_it_is_the_first_to_go_without_memory_also_when_its_process_has_ended(tmp_path: Path) -> None:
    """That may have been one rank of many."""
    program = (
        "import sys; from pathlib import Path; from lostflops.collect import reducer\n"
        "try: reducer.main(Path(sys.argv[1]), Path(sys.argv[1]))\n"
        "finally: print(open('/proc/self/oom_score_adj').read())"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "none")]
    path = {"PYTHONPATH": str(Path(reducer.__file__).parents[2])}
    done = subprocess.run(words, capture_output=True, check=False, text=True, env=path)
    assert (done.returncode, done.stdout.split()) == (1, ["1000"])


@pytest.mark.slow
def test_memory_does_not_follow_the_trace(trace: Path) -> None:
    event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": %d, "dur": 1},\n'
    head, tail = TRACE.split(b"[\n", 1)
    plain = trace.with_suffix("")
    plain.write_bytes(head + b"[\n" + b"".join(event % (100 + 2 * i) for i in range(600_000)) + tail)
    program = (
        "import resource, sys; from pathlib import Path; from lostflops.collect.placing import finish\n"
        f"assert finish(Path({str(plain)!r}), Path({str(trace)!r}), reducer=sys.executable) is None\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert int(done.stdout) < 400_000


def test_a_reducer_loads_one_format() -> None:
    """Loading all formats takes longer than reducing a small trace."""
    program = (
        "import sys; from pathlib import Path; from lostflops.collect import reducer;"
        "package = Path(reducer.__file__).parent.parent;"
        "[sys.modules.pop(name) for name in list(sys.modules) if name.startswith('lostflops')];"
        "reducer._load_lostflops(package); import lostflops.ingest.reduce;"
        "print(sorted({name.split('.')[3] for name in sys.modules if name.startswith('lostflops.ingest.formats.')}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['kineto']"
