"""How aligning ranks and finding stragglers grow with the number of ranks, and whether the answers stay true.

    python benchmarks/ranks.py --sizes 104 1000 10000 --json numbers.json

Makes runs of 5 steps with 200 collectives each (see big_cluster.py; not timed), then measures in fresh processes,
start-up included: committing a run without alignment, the same with alignment (matching and clocks), and
`lostflops ranks --json`. Exit code 1 means that an answer was wrong or could not be had.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SIZES = (104, 304, 1000, 3000, 10_000)
HOST = 8
EXPECTED = {"slow": ("compute", "slow_kernels"), "late": ("idle.data", "late_data")}
COMMIT, ALIGN, RANKS = "commit", "commit with alignment", "lostflops ranks"

# This process imports nothing heavy: the peak of a child counts what its parent held when it was started.


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement in one process."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


def measure(command: list[str], output: Path) -> Sample:
    began = time.perf_counter()
    with output.open("w") as file:
        process = subprocess.Popen(command, stdout=file, env=os.environ)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}")
    return Sample(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def ours(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "lostflops", *map(str, arguments)]


def commit_here(folder: Path, with_alignment: bool) -> None:
    """The last step of ingest on a run that is not aligned; what runs in the child."""
    from lostflops.store.commit import RunWriter  # noqa: PLC0415
    from lostflops.store.tables import ARRIVALS, CLOCKS, RANKS  # noqa: PLC0415

    made = {table.name for table in (RANKS, CLOCKS, ARRIVALS)}
    with RunWriter(folder.resolve()) as run:
        sources = run.manifest.sources
        files = {name: kept for name, kept in run.manifest.files.items() if name not in made}
        if with_alignment:
            from lostflops.ingest.join.alignment import align_ranks  # noqa: PLC0415

            align_ranks(run, files, sources)  # as ingest calls it before it commits
        run.commit(sources, files)


def numbers_of(folder: Path, ranks: int) -> dict[str, Any]:
    """Make a run, measure, and judge the answers."""
    run, output, here = folder / f"ranks-{ranks}", folder / "output.json", Path(__file__).resolve()
    shutil.rmtree(run, ignore_errors=True)
    measure([sys.executable, str(here.parent / "big_cluster.py"), str(run), "--ranks", str(ranks)], output)
    truth = json.loads(output.read_text())
    samples = {COMMIT: measure([sys.executable, str(here), "--commit", str(run)], output)}
    wrong = []
    if is_there("lostflops.account.align"):
        samples[ALIGN] = measure([sys.executable, str(here), "--align", str(run)], output)
    if is_there("lostflops.explain.analyze.ranks"):
        samples[RANKS] = measure(ours("ranks", run, "--json"), output)
        wrong = mistakes(json.loads(output.read_text()), truth, _instant(run, output))
    shutil.rmtree(run)
    return {"ranks": ranks, "samples": {name: asdict(sample) for name, sample in samples.items()}, "wrong": wrong}


def is_there(module: str) -> bool:
    """Whether this Lostflops has it, without importing it."""
    package = find_spec("lostflops")
    assert package is not None, "Lostflops is not installed"
    path = Path(*module.split(".")[1:])
    folders = [Path(folder) for folder in package.submodule_search_locations or ()]
    return any((folder / path).is_dir() or (folder / path).with_suffix(".py").exists() for folder in folders)


def _instant(run: Path, output: Path) -> int:
    measure(ours("sql", run, "select distinct instant from clocks where instant is not null", "--json"), output)
    (row,) = json.loads(output.read_text())["rows"]
    return int(row["instant"])


def mistakes(answer: dict[str, Any], truth: dict[str, Any], instant: int) -> list[str]:
    return [*_wrong_offsets(answer["clock"], truth, instant), *_wrong_stragglers(answer["stragglers"], truth)]


def _wrong_offsets(clock: dict[str, Any], truth: dict[str, Any], instant: int) -> list[str]:
    """Whole nanoseconds tell an offset no closer than one."""
    offset, drift = truth["offset"], [Fraction(ppb, 10**9) for ppb in truth["drift_ppb"]]
    reference = clock["reference"] // HOST
    true_time = (instant - truth["base_time"] - offset[reference]) / (1 + drift[reference])
    rows = {row["rank"]: row for row in clock["ranks"]}
    wrong = []
    for rank in range(truth["ranks"]):
        host, row = rank // HOST, rows.get(rank, {})
        true = offset[reference] - offset[host] + true_time * (drift[reference] - drift[host])
        if row.get("offset_ns") is None:
            wrong.append(f"rank {rank} has no offset")
        elif abs(true - row["offset_ns"]) > row["uncertainty_ns"] + 1:
            error = float(true - row["offset_ns"])
            wrong.append(f"rank {rank} is off by {error:.0f} ns, certified {row['uncertainty_ns']} ns")
    return wrong


def _wrong_stragglers(stragglers: list[dict[str, Any]], truth: dict[str, Any]) -> list[str]:
    named = {row["rank"]: (row["cause"]["line"], row["cause"]["name"]) for row in stragglers}
    expected = {truth[key]: cause for key, cause in EXPECTED.items()}
    return [] if named == expected else [f"stragglers are {expected}, named are {dict(list(named.items())[:8])}"]


def print_table(results: list[dict[str, Any]]) -> None:
    print(f"{'ranks':>7}  {'':<24}{'seconds':>9}{'CPU s':>9}{'ms a rank':>11}{'peak MB':>9}")
    for result in results:
        for name, sample in result["samples"].items():
            per_rank = 1000 * sample["seconds"] / result["ranks"]
            times = f"{sample['seconds']:>9.2f}{sample['cpu_seconds']:>9.2f}{per_rank:>11.2f}"
            print(f"{result['ranks']:>7}  {name:<24}{times}{sample['peak_mb']:>9.0f}")
        for text in result["wrong"][:5]:
            print(f"{'':>9}wrong: {text}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of ranks, multiples of 8")
    parser.add_argument("--folder", type=Path, help="where the runs are made; a temporary one by default")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--commit", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--align", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.commit or options.align:
        commit_here(options.commit or options.align, with_alignment=bool(options.align))
        return 0
    with tempfile.TemporaryDirectory(prefix="lostflops-benchmark-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        results = [numbers_of(folder, ranks) for ranks in options.sizes]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print_table(results)
    missing = [
        module for module in ("lostflops.account.align", "lostflops.explain.analyze.ranks") if not is_there(module)
    ]
    for module in missing:
        print(f"not measured: there is no {module}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if missing or any(result["wrong"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
