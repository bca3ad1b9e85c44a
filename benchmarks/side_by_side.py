"""How much slower is one version than another? CPU seconds of ingest, report and page, one version after the other.

    git worktree add /tmp/before REVISION
    python benchmarks/big_traces.py TRACES --ranks 24 --layers 80 --steps 16
    python benchmarks/side_by_side.py /tmp/before . --traces TRACES FOLDER --rounds 7

Each command is a process of its own; its CPU time includes its workers. Both versions use the same interpreter and
libraries. Rounds alternate who is first. Prints medians, and the median ratio with a 95% interval (bootstrap). With
`--without-hardening` the second version is also compared with itself without checksums, checks of values and the watch
of memory.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RESAMPLES = 2000
PROGRAM = "from lostflops.cli.main import main; main()"
WITHOUT = """
from contextlib import nullcontext
import lostflops.cli.memory_watch as memory_watch
memory_watch.watch_memory = nullcontext
from lostflops.store import checksums, commit, run, validity, views
for module in (checksums, commit, run, views):
    for name in ("check_sizes", "check_tables"):
        if hasattr(module, name):
            setattr(module, name, lambda *_: None)
checksums.checksum_of_file = commit.checksum_of_file = lambda _: 0
run.is_marked, commit.mark_run = (lambda _: True), (lambda _: None)
"""


def cpu_seconds(root: Path, program: str, words: list[str], folder: Path) -> float:
    """Return the CPU time of a command and its workers."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(root / "src"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "LOSTFLOPS_WORKERS": "1",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], env=environment, stdout=subprocess.DEVNULL, cwd=folder
    )
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{root}: lostflops {words[0]} failed")
    return usage.ru_utime + usage.ru_stime


def measure(root: Path, program: str, traces: Path, reads: int) -> dict[str, float]:
    """Return the CPU time of each command; of those that read, the median of several."""
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as folder:
        run, page = f"{folder}/run", f"{folder}/page.html"
        commands = {
            "ingest": ["ingest", str(traces), "--out", run],
            "report": ["report", run],
            "page": ["open", run, "--out", page, "--no-browser"],
        }
        repeats = {name: 1 if name == "ingest" else reads for name in commands}
        return {
            name: statistics.median(cpu_seconds(root, program, words, Path(folder)) for _ in range(repeats[name]))
            for name, words in commands.items()
        }


def interval(before: list[float], after: list[float]) -> tuple[float, float, float]:
    """Return the median ratio of pairs, and the ends of its 95% interval."""
    ratios = [second / first for first, second in zip(before, after, strict=True)]
    draw = random.Random(0)
    drawn = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return statistics.median(ratios), drawn[RESAMPLES // 40], drawn[-RESAMPLES // 40]


def describe(name: str, before: list[float], after: list[float]) -> str:
    ratio, low, high = interval(before, after)
    medians = f"{statistics.median(before):.2f} and {statistics.median(after):.2f} s of CPU"
    return f"{name}: {medians}, ratio {ratio:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", type=Path, nargs=2, help="two checkouts")
    parser.add_argument("--traces", type=Path, nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--reads", type=int, default=1, help="reports and pages for each ingest")
    parser.add_argument("--without-hardening", action="store_true", help="a third arm")
    options = parser.parse_args()
    first, second = (one.resolve() for one in options.versions)
    arms = {"before": (first, PROGRAM), "after": (second, PROGRAM)}
    arms |= {"without": (second, WITHOUT + PROGRAM)} if options.without_hardening else {}
    for traces in options.traces:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
        for number in range(options.rounds + 1):
            for name in sorted(arms, reverse=bool(number % 2)):
                found[name].append(measure(*arms[name], traces.resolve(), options.reads))
        for verb in found["after"][0]:
            times = {
                name: [one[verb] for one in rounds[1:]] for name, rounds in found.items()
            }  # the first warms caches
            for name in arms.keys() - {"after"}:
                print(describe(f"{traces.name} {verb}, {name} and after", times[name], times["after"]), flush=True)


if __name__ == "__main__":
    main()
