"""Damaged and hostile inputs by the thousand: each ends in a readable run or in an error of our own tree.

    python tests/integration/fuzz_harness.py --cases 20000

A case is a number, so `--case 1234` repeats one and `--keep FOLDER` writes its file. Cases run in long-lived child
processes, whose memory and CPU time are watched: on a shared machine wall time says little.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import json
import os
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
if not __package__:  # run as a script
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from lostflops.core.errors import LostflopsError, RunError  # noqa: E402
from tests.integration.fuzz_cases import MUST_TELL, Case, bases, make_case, plain_name  # noqa: E402

MOST_CPU_S = 2.0
MOST_RSS_MB = 512.0
_GIVE_UP_CPU_S = 20.0
_ADDRESS_SPACE = 3 << 30
_FRESH_DATABASE_EVERY = 50
_CASES_A_CHILD = 2000

# In the child.


@dataclass(slots=True)
class Result:
    """How a case ended. `failure` is empty when it ended as it must."""

    number: int
    outcome: str = ""
    failure: str = ""
    detail: str = ""
    cpu_s: float = 0.0
    rss_mb: float = 0.0


class _Ingester:
    """Ingests one input after the other and checks what becomes of it."""

    def __init__(self, folder: Path) -> None:
        from lostflops.ingest import ingest

        self.folder = folder
        self.ingest = ingest
        self.expected = {
            name: self._state_of(Case(-1, name, (), plain_name(name), data)) for name, data in bases().items()
        }

    def run(self, case: Case) -> Result:
        result = Result(case.number)
        _reset_peak()
        began = time.process_time()
        try:
            rows, stats = self._state_of(case)
            result.outcome = "ok"
            result.failure = self._silent_loss(case, rows, stats)
        except LostflopsError as error:
            result.outcome = type(error).__name__
            if isinstance(error, RunError):  # a source is at fault, never the run that it was to go into
                result.failure, result.detail = f"{type(error).__name__} for a source", str(error)
            elif not str(error):
                result.failure = "error without a message"
        except BaseException as error:  # noqa: BLE001 - finding these is the purpose
            result.outcome = result.failure = f"{type(error).__module__}.{type(error).__name__}"
            result.detail = traceback.format_exc(limit=-6)
        result.cpu_s = time.process_time() - began
        result.rss_mb = _peak_mb()
        if not result.failure and result.cpu_s > MOST_CPU_S:
            result.failure = "slow"
        if not result.failure and result.rss_mb > MOST_RSS_MB:
            result.failure = "memory"
        return result

    def _state_of(self, case: Case) -> tuple[int, frozenset[tuple[Any, ...]]]:
        source, out = self.folder / case.name, self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        source.write_bytes(case.data)
        try:
            self.ingest([source], out, workers=1)
            try:
                return read_back(out, thoroughly=case.number % _FRESH_DATABASE_EVERY == 0)
            except LostflopsError as error:
                raise AssertionError(f"ingested, and then: {error}") from error
        finally:
            source.unlink()
            shutil.rmtree(out, ignore_errors=True)

    def _silent_loss(self, case: Case, rows: int, stats: frozenset[tuple[Any, ...]]) -> str:
        told = set(case.mutations) - {"gzip", "gzip_members"}
        if len(case.mutations) > 2 or not told <= MUST_TELL or case.mutations[0] not in MUST_TELL:
            return ""
        expected_rows, expected_stats = self.expected[case.base]
        named = {(what, count) for what, _, count, _ in stats if what != "rank_assigned"}
        usual = {(what, count) for what, _, count, _ in expected_stats if what != "rank_assigned"}
        return f"{expected_rows - rows} rows lost and not in stats" if rows < expected_rows and named == usual else ""


def read_back(out: Path, thoroughly: bool) -> tuple[int, frozenset[tuple[Any, ...]]]:
    """Read every table of a run to the end; number of timed rows, and the rows of `stats`."""
    from lostflops.store.manifest import load
    from lostflops.store.run import Run
    from lostflops.store.tables import TABLES

    if thoroughly:
        with Run.open(out) as run:
            for declared in TABLES:
                run.table(declared.name).fetchall()
    rows, stats = 0, []
    for table, files in load(out).files.items():
        for file in files:
            found = _reader().sql(f"SELECT * FROM read_parquet('{out / file.path}')").fetchall()
            rows += len(found) if table in ("events", "flight") else 0
            if table == "stats":
                stats += [row[-4:] for row in found]
    for what, effect, count, reason in stats:
        if not what or effect not in ("dropped", "repaired", "guessed", "missing", "note") or count < 1 or not reason:
            raise ValueError(f"a row of stats says nothing: {(what, effect, count, reason)}")
    return rows, frozenset(stats)


@functools.cache
def _reader() -> Any:
    import duckdb

    return duckdb.connect(config={"threads": 1})


def _peak_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _reset_peak() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


class _OneDatabase:
    """Stands for `duckdb` in the writer: opening a database takes longer than a case, so most cases share one."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._shared: Any = None
        self.share = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def connect(self, *arguments: Any, **options: Any) -> Any:
        if not self.share:
            return self._module.connect(*arguments, **options)
        if self._shared is None:
            self._shared = self._module.connect(*arguments, **options)
        return self._shared.cursor()


def child(folder: Path, seed: int) -> None:
    """Take numbers of cases on standard input; write a result for each, one JSON text a line."""
    from lostflops.store import parquet

    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    database = _OneDatabase(vars(parquet)["duckdb"])
    vars(parquet)["duckdb"] = database
    ingester = _Ingester(folder)
    print("ready", flush=True)
    for line in sys.stdin:
        case = make_case(int(line), seed)
        database.share = case.number % _FRESH_DATABASE_EVERY != 0
        result = ingester.run(case)
        result.detail = result.detail or f"{case.base}: {', '.join(case.mutations)}"
        print(json.dumps({name: getattr(result, name) for name in Result.__slots__}), flush=True)


# In the parent.


@dataclass
class Summary:
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def failures(self) -> list[Result]:
        return sorted((result for result in self.results if result.failure), key=lambda result: result.number)

    def __str__(self) -> str:
        outcomes = Counter(result.outcome for result in self.results)
        slowest = max(self.results, key=lambda result: result.cpu_s)
        largest = max(self.results, key=lambda result: result.rss_mb)
        lines = [f"{len(self.results):,} cases in {self.seconds:.0f} s"]
        lines += [f"  {name:<32} {count:>7,}" for name, count in outcomes.most_common()]
        lines.append(f"slowest: case {slowest.number}, {slowest.cpu_s:.2f} s of CPU ({slowest.detail.splitlines()[0]})")
        lines.append(f"largest: case {largest.number}, {largest.rss_mb:.0f} MB ({largest.detail.splitlines()[0]})")
        lines.append(f"failures: {len(self.failures):,}")
        for failure, count in Counter(result.failure for result in self.failures).most_common(20):
            alike = [result for result in self.failures if result.failure == failure]
            numbers = ", ".join(str(result.number) for result in alike[:20])
            lines.append(f"  {count:>5,} {failure}: cases {numbers}; the first one:\n{alike[0].detail}")
        return "\n".join(lines)


class _Child:
    """A child process, and the watch over it."""

    def __init__(self, seed: int, folder: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--child", folder, "--seed", str(seed)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.cases = 0
        assert _pipe(self.process.stdout).readline() == "ready\n", "the base inputs do not ingest"

    def run(self, number: int) -> Result:
        self.cases += 1
        began = self._cpu_s()
        print(number, file=_pipe(self.process.stdin), flush=True)
        while not select.select([_pipe(self.process.stdout)], [], [], 0.5)[0]:
            spent = self._cpu_s() - began
            if spent > _GIVE_UP_CPU_S:
                self.close()
                return Result(number, "hang", "hang", f"killed after {spent:.0f} s of CPU", spent)
        line = _pipe(self.process.stdout).readline()
        if not line:
            return Result(number, "crash", "crash", f"the process died with code {self.process.wait()}")
        return Result(**json.loads(line))

    def _cpu_s(self) -> float:
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def is_spent(self) -> bool:
        return self.cases >= _CASES_A_CHILD or self.process.poll() is not None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        _pipe(self.process.stdin).close()
        _pipe(self.process.stdout).close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def run_cases(numbers: Iterable[int], seed: int = 0, jobs: int = 2) -> Summary:
    summary, began = Summary(), time.monotonic()
    waiting, lock = iter(numbers), threading.Lock()

    def take() -> Iterator[int]:
        while True:
            with lock:
                number = next(waiting, None)
            if number is None:
                return
            yield number

    def attend() -> None:
        with tempfile.TemporaryDirectory(prefix="lostflops-fuzz-") as folder:
            running = _Child(seed, folder)
            try:
                for number in take():
                    if running.is_spent:
                        running.close()
                        running = _Child(seed, folder)
                    result = running.run(number)
                    with lock:
                        summary.results.append(result)
            finally:
                running.close()

    threads = [threading.Thread(target=attend) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    summary.seconds = time.monotonic() - began
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, nargs="+", help="run only these")
    parser.add_argument("--keep", type=Path, help="folder for the inputs of --case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.seed)
        return 0
    numbers = options.case or range(options.first, options.first + options.cases)
    for number in options.case or ():
        case = make_case(number, options.seed)
        print(f"case {number}: {case.base}, {', '.join(case.mutations)}, {len(case.data):,} bytes")
        if options.keep:
            (options.keep / f"{number}-{case.name}").write_bytes(case.data)
    summary = run_cases(numbers, options.seed, min(options.jobs, len(numbers)))
    print(summary)
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())
