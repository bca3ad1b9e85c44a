"""Many ranks: ingest by processes and by Ray, questions, growth, beside DuckDB reading the same Parquet bare.

    python benchmarks/scale_out.py FOLDER --json numbers.json
    python benchmarks/scale_out.py FOLDER --ranks 1000 --growth 16 104 304 --kill
    python benchmarks/scale_out.py FOLDER --growth 16 100 1000 10000 --layers 12 --steps 20 --only-growth

Makes traces (big_traces.py; not timed) unless FOLDER has them. Every measurement is a fresh process, start-up included;
engines take turns. Memory is that of a process with all its children, looked at every 0.2 s. Exit code 1 means that
engines did not write the same bytes, that an answer was wrong, or that a target was missed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENGINES = ("local", "ray")
LEAST_RAY, MOST_MB = 0.8, 1000.0
MOST_SECONDS = {"report": 5.0, "ranks": 5.0, "diagnose": 20.0, "page": 30.0}
"""Limits of 1,000 ranks on a quiet machine; smaller runs must keep them too."""
MOST_SCANS = 5.0
"""A report may take this many times what DuckDB takes to read the same tables bare."""
READ_BY_REPORT = (
    "accounts",
    "clocks",
    "diagnosis",
    "lanes",
    "ledger",
    "ranks",
    "spans",
    "stacks",
    "stats",
    "steps",
    "timings",
    "work",
)
_LOOK_EVERY = 0.2


@dataclass(slots=True)
class Sample:
    seconds: float
    peak_mb: float
    killed: int = 0


def measured(command: list[str], output: Path, kill_after: float | None = None) -> Sample:
    """Also ends one of its workers with -9 after so many seconds, if asked to."""
    began, peak, killed = time.perf_counter(), 0.0, 0
    with output.open("w") as file:
        process = subprocess.Popen(command, stdout=file)
        while process.poll() is None:
            time.sleep(_LOOK_EVERY)
            family = _family(process.pid)
            peak = max(peak, sum(_resident_mb(pid) for pid in family))
            if kill_after is not None and not killed and time.perf_counter() - began > kill_after:
                killed = _kill_a_worker(family)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}")
    return Sample(time.perf_counter() - began, peak, killed)


def _family(root: int) -> list[int]:
    """The process and all below it; Ray's workers are children of its raylet, which is a child of ours."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _resident_mb(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, IndexError):
        return 0.0


def _kill_a_worker(family: list[int]) -> int:
    """One that is at work: 1 if there was one."""
    for pid in family[1:]:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"ray::_answer_order" in words or b"lostflops.store.spread.worker" in words:
            os.kill(pid, signal.SIGKILL)
            return 1
    return 0


def ours(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "lostflops", *map(str, arguments)]


def traces_of(folder: Path, ranks: int, shape: list[str]) -> tuple[Path, dict[str, Any]]:
    traces, kept = folder / f"traces-{ranks}", folder / f"truth-{ranks}.json"
    if not kept.exists():
        print(f"writing traces of {ranks} ranks ...", file=sys.stderr)
        command = [sys.executable, str(HERE / "big_traces.py"), str(traces), "--ranks", str(ranks), *shape]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        kept.write_text(done.stdout)
    return traces, json.loads(kept.read_text())


def ingested(traces: Path, run: Path, engine: str, workers: int, kill_after: float | None = None) -> Sample:
    shutil.rmtree(run, ignore_errors=True)
    command = ours("ingest", traces, "-o", run, "--engine", engine, "--workers", str(workers), "--json")
    return measured(command, run.with_suffix(".ingest.json"), kill_after)


def content(run: Path) -> dict[str, str]:
    """The bytes of every file of a run, as a digest, by its name; a diagnosis says when it was made."""
    files = [path for path in sorted((run / "data").rglob("*.parquet")) if path.parent.name != "diagnosis"]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def bare(run: Path) -> dict[str, float]:
    """DuckDB alone: every column of every table, read once."""
    import duckdb  # noqa: PLC0415

    found = {}
    for table in sorted((run / "data").glob("*/*")):
        began = time.perf_counter()
        with duckdb.connect() as connection:
            connection.execute("SET enable_progress_bar = false")
            scan = f"read_parquet('{table}/*.parquet')"
            names = [row[0] for row in connection.sql(f"describe select * from {scan}").fetchall()]
            read = ", ".join(f"max({name})" for name in names)
            rows = connection.sql(f"select count(*), {read} from {scan}").fetchall()[0][0]
        seconds = time.perf_counter() - began
        size = sum(file.stat().st_size for file in table.glob("*.parquet"))
        found[table.name] = {"rows": rows, "bytes_per_row": size / rows, "rows_per_second": rows / seconds}
    return found


def questions(run: Path, truth: dict[str, Any]) -> tuple[dict[str, Sample], list[str]]:
    samples, wrong = {}, []
    for verb, most in MOST_SECONDS.items():
        output = run.with_suffix(f".{verb}.json")
        page = run.with_suffix(".html")
        command = ours("report", run, "--html", page) if verb == "page" else ours(verb, run, "--json")
        samples[verb] = measured(command, output)
        # What a page says is deflated; it is what the others say.
        if verb != "page" and f"Rank {truth['slow']} is late" not in output.read_text():
            wrong.append(f"{verb} does not name rank {truth['slow']}")
        if samples[verb].seconds > most or samples[verb].peak_mb > MOST_MB:
            wrong.append(f"{verb} takes {samples[verb].seconds:.0f} s and {samples[verb].peak_mb:.0f} MB")
    return samples, wrong


_REPORT_AND_SCAN = """
import json, sys, time
import duckdb
import lostflops

def timed(action):
    began = time.perf_counter()
    action()
    return time.perf_counter() - began

run = lostflops.open(sys.argv[1])
run.report()  # imports, and what the operating system keeps of the files
files = {name: [str(run.folder / one.path) for one in own] for name, own in run.stored.manifest.files.items()}
run.close()

def report():
    with lostflops.open(sys.argv[1]) as opened:
        opened.report()

def scan():
    with duckdb.connect() as connection:
        for name in sys.argv[2:]:
            if files.get(name):
                table = f"read_parquet({files[name]})"
                columns = connection.sql(f"select * from {table}").columns
                read = ", ".join(f'max("{column}")' for column in columns)
                connection.execute(f"select count(*), {read} from {table}").fetchall()

rounds = [(timed(report), timed(scan)) for _ in range(5)]
print(json.dumps([min(column) for column in zip(*rounds)]))
"""


def against_scan(run: Path) -> dict[str, float]:
    """A report in a process that is warm, beside a bare scan of the tables that it reads; in turn, best of five."""
    command = [sys.executable, "-c", _REPORT_AND_SCAN, str(run), *READ_BY_REPORT]
    report, scan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"report": report, "scan": scan, "times": report / scan}


def slopes(curve: list[dict[str, Any]]) -> dict[str, float]:
    """The power of the number of ranks that each time grows with, from the two largest runs."""
    if len(curve) < 2:
        return {}
    small, large = sorted(curve, key=lambda point: point["ranks"])[-2:]
    grown = math.log(large["ranks"] / small["ranks"])
    return {name: math.log(large["seconds"][name] / small["seconds"][name]) / grown for name in large["seconds"]}


def growth(folder: Path, options: argparse.Namespace, shape: list[str]) -> list[dict[str, Any]]:
    curve = []
    for ranks in options.growth:
        traces, truth = traces_of(folder, ranks, shape)
        run = folder / f"run-{ranks}"
        taken = {"ingest": ingested(traces, run, "local", options.workers)}
        samples, wrong = questions(run, truth)
        seconds = {name: sample.seconds for name, sample in (taken | samples).items()}
        beside = against_scan(run)
        print(f"  {ranks:>5} ranks  {seconds}  {beside}", file=sys.stderr)
        if beside["times"] > MOST_SCANS:
            wrong.append(f"a report of {ranks} ranks takes {beside['times']:.1f} times a bare scan")
        peaks = {name: sample.peak_mb for name, sample in (taken | samples).items()}
        point = {"ranks": ranks, "events": truth["events"], "seconds": seconds, "peak_mb": peaks}
        curve.append(point | {"against_scan": beside, "wrong": wrong})
    return curve


def engines(folder: Path, traces: Path, options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    samples: dict[str, list[Sample]] = {name: [] for name in ENGINES}
    written, wrong = {}, []
    for number in range(options.repeat):
        for name in ENGINES if number % 2 == 0 else reversed(ENGINES):
            run = folder / f"run-{name}"
            samples[name].append(ingested(traces, run, name, options.workers))
            written[name] = content(run)
            print(f"  {name:<6} {samples[name][-1].seconds:7.1f} s", file=sys.stderr)
    for name in ENGINES if options.kill else ():
        run, half = folder / f"run-{name}-killed", min(sample.seconds for sample in samples[name]) / 2
        samples[f"{name}, killed"] = [ingested(traces, run, name, options.workers, half)]
        written[f"{name}, killed"] = content(run)
        if not samples[f"{name}, killed"][0].killed:
            wrong.append(f"no worker of {name} was found to kill")
        shutil.rmtree(run)
    wrong += [f"{name} wrote other bytes" for name, bytes_ in written.items() if bytes_ != written["local"]]
    best = {name: min(sample.seconds for sample in own) for name, own in samples.items()}
    if best["local"] / best["ray"] < LEAST_RAY:
        wrong.append(f"Ray reaches {best['local'] / best['ray']:.2f} of what processes do, {LEAST_RAY} wanted")
    told = {name: [asdict(sample) for sample in own] for name, own in samples.items()}
    return {"samples": told, "ray/local": best["local"] / best["ray"], "files": len(written["local"])}, wrong


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--layers", default="80")
    parser.add_argument("--steps", default="20")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=2, help="rounds of both engines [default: 2]")
    parser.add_argument("--kill", action="store_true", help="also end a worker of each engine half-way, with -9")
    parser.add_argument("--growth", type=int, nargs="*", default=[], help="smaller runs, to see how times grow")
    parser.add_argument("--only-growth", action="store_true", help="do not compare engines")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    shape = ["--layers", options.layers, "--steps", options.steps]
    report: dict[str, Any] = {"growth": []}
    report["growth"] = growth(options.folder, options, shape)
    report["slopes"] = slopes(report["growth"])
    if options.only_growth:
        report["wrong"] = [text for point in report["growth"] for text in point["wrong"]]
        return finish(options, report)
    traces, truth = traces_of(options.folder, options.ranks, shape)
    report |= {"ranks": options.ranks, "events": truth["events"]}
    report["engines"], report["wrong"] = engines(options.folder, traces, options)
    run = options.folder / "run-local"
    report["bare"] = bare(run)
    samples, wrong = questions(run, truth)
    report["questions"] = {name: asdict(sample) for name, sample in samples.items()}
    report["against_scan"] = against_scan(run)
    report["wrong"] += wrong + [text for point in report["growth"] for text in point["wrong"]]
    return finish(options, report)


def finish(options: argparse.Namespace, report: dict[str, Any]) -> int:
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
