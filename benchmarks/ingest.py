"""How fast ingest is, and how much memory it takes, beside bare decoding, the standard library and HTA.

    python benchmarks/ingest.py --make-hta-environment --json numbers.json
    python benchmarks/ingest.py --tiles ../shared/traces --folder FOLDER --json numbers.json

Every measurement runs in a fresh process, in turn, on the same file; the page cache is warm. Imports, loading compiled
code and, for bare decoding, reading the file into memory lie outside the clock. Exit code 1 means that a target was
missed. With `--tiles` only long traces made from real ones are measured (`tiles.py`), by CPU time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, cast

HTA = "HolisticTraceAnalysis==0.5.0"
BIG_MB, SMALL_MB, SMALL_FILES = 330, 80, 8
MOST_TIMES_BARE = 2.5
LEAST_TIMES_HTA = 40.0
MOST_MEMORY_MB = 512.0
MOST_GROWTH = 0.10
LEAST_SPEED_UP = 1.7
TILE_MB = 150
MOST_TIMES_BARE_TILE = 1.5
MOST_TILE_MEMORY_MB = 300.0

BARE, BARE_NO_GC, OURS, STDLIB, HTA_LOAD = "bare decode", "bare decode, gc off", "ours", "json.load", "HTA 0.5.0"
HTA_PLAIN = "HTA 0.5.0, no tracemalloc"
OURS_PLAIN = "ours, no numba"


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement in one process."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    events: int


@dataclass(slots=True)
class Report:
    """Everything that was measured; `missed` names the targets."""

    machine: dict[str, Any]
    file: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    workers: dict[str, Any] = field(default_factory=dict)
    tiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def best(self, name: str) -> Sample:
        return min(self.samples[name], key=lambda sample: sample.seconds)


# What runs in the fresh processes. The imports are lazy because HTA's environment holds no Lostflops, and ours no HTA.


def bare_decode(path: Path) -> Callable[[], int]:
    import msgspec  # noqa: PLC0415

    from lostflops.ingest.formats.kineto.schema import Event  # noqa: PLC0415

    document = msgspec.defstruct("Document", [("traceEvents", list[Event])])
    data = path.read_bytes()
    return lambda: len(cast("Any", msgspec.json.decode(data, type=document)).traceEvents)


def bare_decode_without_gc(path: Path) -> Callable[[], int]:
    gc.disable()
    return bare_decode(path)


def ours(path: Path, workers: int = 1) -> Callable[[], int]:
    from lostflops.ingest import ingest  # noqa: PLC0415

    def run() -> int:
        with tempfile.TemporaryDirectory(dir=path.parent) as out:
            return ingest([path], Path(out, "run"), workers=workers).events

    return run


def load_compiled_code() -> None:
    """Load what a large trace loads, as a part of start-up; compile it if it is not in numba's cache."""
    from lostflops.ingest.formats.kineto.raw_memory import IS_COMPILED  # noqa: PLC0415
    from lostflops.ingest.formats.kineto.scanner import Scanner  # noqa: PLC0415

    if IS_COMPILED:
        Scanner().scan(b"[{}]")


def ours_loaded(path: Path) -> Callable[[], int]:
    load_compiled_code()
    return ours(path)


def ours_without_numba(path: Path) -> Callable[[], int]:
    reader = import_module("lostflops.ingest.formats.kineto.reader")
    reader.find_spec = lambda _: None  # type: ignore[attr-defined]
    return ours(path)


def ours_with_two_workers(path: Path) -> Callable[[], int]:
    return ours(path, workers=2)


def stdlib(path: Path) -> Callable[[], int]:
    def run() -> int:
        with path.open() as file:
            return len(json.load(file)["traceEvents"])

    return run


def hta(path: Path) -> Callable[[], int]:
    from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]  # noqa: PLC0415

    return lambda: len(TraceAnalysis(trace_files={0: str(path)}).t.traces[0])


def hta_without_memory_profiling(path: Path) -> Callable[[], int]:
    """As fast as HTA goes: by default it traces every allocation while it parses."""
    from hta.common.trace import Trace  # type: ignore[import-not-found]  # noqa: PLC0415

    def run() -> int:
        trace = Trace({0: str(path)})
        trace.load_traces(use_multiprocessing=False, use_memory_profiling=False)
        return len(trace.traces[0])

    return run


CONTESTANTS: dict[str, Callable[[Path], Callable[[], int]]] = {
    BARE: bare_decode,
    BARE_NO_GC: bare_decode_without_gc,
    OURS: ours_loaded,
    OURS_PLAIN: ours_without_numba,
    "ours, 2 workers": ours_with_two_workers,
    STDLIB: stdlib,
    HTA_LOAD: hta,
    HTA_PLAIN: hta_without_memory_profiling,
}


def measure_here(name: str, path: Path) -> Sample:
    run = CONTESTANTS[name](path)
    began, cpu_began = time.perf_counter(), time.process_time()
    events = run()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return Sample(seconds, cpu, peak * 1024 / 1e6, events)


def measure(name: str, path: Path, python: str = sys.executable) -> Sample:
    """Measure in a fresh process; its last line of output is the sample."""
    command = [python, str(Path(__file__).resolve()), "--measure", name, str(path)]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode:
        last = (outcome.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{name} failed with exit code {outcome.returncode}: {last}")
    return Sample(**json.loads(outcome.stdout.splitlines()[-1]))


def trace_of(folder: Path, megabytes: int, rank: int = 0, name: str = "") -> tuple[Path, int]:
    """A trace and its number of events, made unless an earlier run left it in the folder."""
    from big_trace import write_trace  # noqa: PLC0415 - it lies beside this file

    path = folder / name / f"rank{rank}_{megabytes}mb.json"
    counted = path.with_suffix(".events")
    if not counted.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"writing {path.name} ...", file=sys.stderr)
        counted.write_text(str(write_trace(path, megabytes, rank)))
    return path, int(counted.read_text())


def warm(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def measure_speed(report: Report, path: Path, repeat: int) -> None:
    for number in range(repeat):
        for name in (BARE, BARE_NO_GC, OURS, STDLIB):
            warm(path)
            sample = measure(name, path)
            print(f"  round {number + 1}: {name:<22} {sample.seconds:7.2f} s", file=sys.stderr)
            report.samples.setdefault(name, []).append(sample)


def measure_hta(report: Report, path: Path, python: str) -> None:
    """Once: it takes minutes, so noise does not matter."""
    for name in (HTA_LOAD, HTA_PLAIN):
        warm(path)
        try:
            report.samples[name] = [measure(name, path, python)]
        except RuntimeError as error:
            report.notes.append(str(error))
        else:
            print(f"  {name:<31} {report.best(name).seconds:7.2f} s", file=sys.stderr)


def measure_memory(report: Report, folder: Path) -> None:
    large, _ = trace_of(folder, 3 * BIG_MB)
    warm(large)
    sample = measure(OURS, large)
    report.samples["ours, 3x file"] = [sample]
    peak = max(sample.peak_mb for sample in report.samples[OURS])
    report.memory = {"peak_mb": peak, "peak_mb_3x": sample.peak_mb, "growth": sample.peak_mb / peak - 1}


def measure_workers(report: Report, folder: Path, repeat: int) -> None:
    """Many files with one worker and with two; wall time is what counts."""
    for rank in range(SMALL_FILES):
        many = trace_of(folder, SMALL_MB, rank, "many")[0].parent
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeat):
        for workers, name in ((1, OURS), (2, "ours, 2 workers")):
            for path in many.iterdir():
                warm(path)
            seconds[workers].append(measure(name, many).seconds)
    best = {workers: min(values) for workers, values in seconds.items()}
    report.workers = {
        "files": SMALL_FILES,
        "file_mb": SMALL_MB,
        "seconds": seconds,
        "speed_up": best[1] / best[2],
        "parallel_cores": parallel_cores(),
    }


def measure_tiles(report: Report, traces: Path, folder: Path, repeat: int, python: str | None) -> None:
    """Measure each tile; the least CPU time of some rounds is what counts, on a machine with other work to do."""
    from tiles import TRACES, make_tiles  # noqa: PLC0415 - it lies beside this file

    for name, path in make_tiles(traces, folder, TILE_MB, list(TRACES)).items():
        samples: dict[str, list[Sample]] = {}
        for _ in range(repeat):
            for contestant in (BARE_NO_GC, OURS, OURS_PLAIN):
                warm(path)
                samples.setdefault(contestant, []).append(measure(contestant, path))
        if python is not None:
            try:
                samples[HTA_PLAIN] = [measure(HTA_PLAIN, path, python)]
            except RuntimeError as error:
                report.notes.append(f"{name}: {error}")
        report.tiles[name] = {
            "bytes": path.stat().st_size,
            "cpu_seconds": {key: min(one.cpu_seconds for one in found) for key, found in samples.items()},
            "peak_mb": {key: max(one.peak_mb for one in found) for key, found in samples.items()},
        }
        print(f"  {name}", file=sys.stderr)


def judge_tiles(report: Report) -> None:
    for name, tile in report.tiles.items():
        times, peak = tile["cpu_seconds"][OURS] / tile["cpu_seconds"][BARE_NO_GC], tile["peak_mb"][OURS]
        if times > MOST_TIMES_BARE_TILE:
            report.missed.append(f"{name}: {times:.2f}x the bare decode, at most {MOST_TIMES_BARE_TILE}x wanted")
        if peak > MOST_TILE_MEMORY_MB:
            report.missed.append(f"{name}: {peak:.0f} MB of memory, less than {MOST_TILE_MEMORY_MB:.0f} wanted")


def print_tiles(report: Report) -> None:
    print(f"{report.machine['cpu']}, {report.machine['cores']} cores, Python {report.machine['python']}\n")
    print(f"{'':<18}{'MB':>6}{'bare CPU s':>12}{'ours':>8}{'x bare':>8}{'MB/CPU s':>10}{'peak MB':>9}", end="")
    print(f"{'no numba':>10}{'x bare':>8}{'peak MB':>9}{'HTA':>8}")
    for name, tile in report.tiles.items():
        cpu, peak, size = tile["cpu_seconds"], tile["peak_mb"], tile["bytes"] / 1e6
        bare = cpu[BARE_NO_GC]
        print(f"{name:<18}{size:>6.0f}{bare:>12.2f}{cpu[OURS]:>8.2f}{cpu[OURS] / bare:>8.2f}", end="")
        print(f"{size / cpu[OURS]:>10.0f}{peak[OURS]:>9.0f}{cpu[OURS_PLAIN]:>10.2f}", end="")
        print(f"{cpu[OURS_PLAIN] / bare:>8.2f}{peak[OURS_PLAIN]:>9.0f}{cpu.get(HTA_PLAIN, float('nan')):>8.1f}")
    for note in report.notes:
        print(f"Note: {note}")
    print("\n".join(f"MISSED: {text}" for text in report.missed) or "All targets reached.")


def parallel_cores() -> float:
    """How much two busy processes do at once, as a multiple of one: the most that two workers could gain."""
    burn = [sys.executable, "-c", "import time; t = time.perf_counter()\nfor _ in range(40_000_000): pass"]

    def together(count: int) -> float:
        began = time.perf_counter()
        for process in [subprocess.Popen(burn) for _ in range(count)]:
            process.wait()
        return time.perf_counter() - began

    return 2 * min(together(1) for _ in range(3)) / min(together(2) for _ in range(3))


def judge(report: Report) -> None:
    bare = report.best(OURS).seconds / report.best(BARE_NO_GC).seconds
    report.ratios["ours/bare, gc off"] = bare
    report.ratios["ours/bare"] = report.best(OURS).seconds / report.best(BARE).seconds
    targets = [
        (bare <= MOST_TIMES_BARE, f"ours takes {bare:.2f}x the bare decode, at most {MOST_TIMES_BARE}x wanted"),
    ]
    for name in (HTA_LOAD, HTA_PLAIN):
        if name in report.samples:
            report.ratios[f"{name}/ours"] = report.best(name).seconds / report.best(OURS).seconds
    times = report.ratios.get(f"{HTA_LOAD}/ours")
    if times is not None:
        targets.append((times >= LEAST_TIMES_HTA, f"{times:.1f}x faster than HTA, {LEAST_TIMES_HTA}x wanted"))
    if report.memory:
        peak, growth = report.memory["peak_mb_3x"], report.memory["growth"]
        targets.append((peak < MOST_MEMORY_MB, f"{peak:.0f} MB of memory, less than {MOST_MEMORY_MB:.0f} wanted"))
        targets.append((growth < MOST_GROWTH, f"memory grows by {growth:.1%}, less than {MOST_GROWTH:.0%} wanted"))
    if report.workers:
        gain = report.workers["speed_up"]
        targets.append((gain >= LEAST_SPEED_UP, f"two workers give {gain:.2f}x, {LEAST_SPEED_UP}x wanted"))
    report.missed = [text for reached, text in targets if not reached]


def print_report(report: Report) -> None:
    size, events = report.file["bytes"], report.file["events"]
    print(f"{report.machine['cpu']}, {report.machine['cores']} cores, Python {report.machine['python']}")
    print(f"trace of {size / 1e6:.0f} MB, {events:,} events, {report.file['steps']} steps\n")
    print(f"{'':<27}{'best s':>9}{'median s':>10}{'CPU s':>9}{'MB/s':>8}{'events/s':>12}{'peak MB':>9}{'x bare':>8}")
    bare = report.best(BARE_NO_GC).seconds
    for name, samples in report.samples.items():
        best = report.best(name)
        scale = 3 if name.endswith("3x file") else 1
        print(
            f"{name:<27}{best.seconds:>9.2f}{median(s.seconds for s in samples):>10.2f}{best.cpu_seconds:>9.2f}"
            f"{scale * size / 1e6 / best.seconds:>8.1f}{scale * events / best.seconds:>12,.0f}"
            f"{max(s.peak_mb for s in samples):>9.0f}{best.seconds / bare / scale:>8.2f}"
        )
    print()
    for name, ratio in report.ratios.items():
        print(f"{name:<40}{ratio:>8.2f}x")
    if report.memory:
        print(f"memory, file and three times the file   {report.memory['peak_mb']:.0f} MB and", end=" ")
        print(f"{report.memory['peak_mb_3x']:.0f} MB, growth {report.memory['growth']:.1%}")
    if report.workers:
        one, two = (min(report.workers["seconds"][workers]) for workers in (1, 2))
        print(f"{SMALL_FILES} files of {SMALL_MB} MB, 1 and 2 workers   {one:.2f} s and {two:.2f} s,", end=" ")
        print(
            f"{report.workers['speed_up']:.2f}x (two loops that share nothing: {report.workers['parallel_cores']:.2f}x)"
        )
    for note in report.notes:
        print(f"Note: {note}")
    print("\n".join(f"MISSED: {text}" for text in report.missed) or "All targets reached.")


def machine_facts() -> dict[str, Any]:
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(memory[0]) / 1e6, 1) if memory else None,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("msgspec", "numpy", "duckdb", "isal")},
        "date": datetime.now(UTC).date().isoformat(),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def make_hta_environment(folder: Path) -> str:
    python = folder / "hta" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "hta", with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", HTA], check=True)
    return str(python)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep the traces here; a temporary folder when not given")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of each measurement [default: 3]")
    parser.add_argument("--hta-python", help="the Python of an environment that holds " + HTA)
    parser.add_argument("--make-hta-environment", action="store_true", help="make such an environment with pip")
    parser.add_argument("--only", choices=["speed", "memory", "workers"], help="measure a part of it")
    parser.add_argument("--tiles", type=Path, metavar="TRACES", help="measure tiles of the real traces in this folder")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def run(options: argparse.Namespace, folder: Path) -> Report:
    report = Report(machine_facts())
    python = make_hta_environment(folder) if options.make_hta_environment else options.hta_python
    if options.tiles:
        measure_tiles(report, options.tiles, folder, options.repeat, python)
        judge_tiles(report)
        return report
    path, events = trace_of(folder, BIG_MB)
    with path.open("rb") as file:
        steps = sum(b'"ProfilerStep#' in line and b'"user_annotation"' in line for line in file)
    report.file = {"bytes": path.stat().st_size, "events": events, "steps": steps}
    measure_speed(report, path, options.repeat)
    if options.only in (None, "memory"):
        measure_memory(report, folder)
    if options.only in (None, "workers"):
        measure_workers(report, folder, options.repeat)
    if python:
        measure_hta(report, path, python)
    elif options.only is None:
        report.notes.append("HTA was not measured: give --hta-python or --make-hta-environment")
    judge(report)
    return report


def main() -> int:
    options = arguments()
    if options.measure:
        print(json.dumps(asdict(measure_here(options.measure[0], Path(options.measure[1])))))
        return 0
    folder = options.folder or Path(tempfile.mkdtemp(prefix="lostflops-benchmark-"))
    try:
        report = run(options, folder)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    if report.tiles:
        print_tiles(report)
    else:
        print_report(report)
    if options.json:
        options.json.write_text(json.dumps(asdict(report), indent=1) + "\n")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
