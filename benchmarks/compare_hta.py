"""Idle, compute, communication and overlap of single traces, as Lostflops and HTA 0.5.0 report them.

    python benchmarks/compare_hta.py traces/facebookresearch__HolisticTraceAnalysis --hta-python hta/bin/python

HTA leaves out the last profiler step unless it is asked for it, so it is run both ways; ours covers the whole trace.
HTA does not split what is neither idle nor compute. A trace that either cannot read keeps the message of the failure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIGURES = ("window_us", "idle_us", "compute_us", "other_us", "comm_us", "copy_us", "overlap_pct")
OURS, HTA, HTA_WHOLE = "lostflops", "HTA", "HTA, last step too"

# Runs in the environment of HTA: two lines of JSON per trace, without the last step and with it.
HTA_PROGRAM = """
import json, logging, sys, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis

def ask(function):
    try:
        return function()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]

for path in sys.argv[1:]:
    for last in (False, True):
        loaded = ask(lambda: TraceAnalysis(trace_files={0: path}, include_last_profiler_step=last))
        answer = {"path": path, "last": last}
        for name in ("get_temporal_breakdown", "get_comm_comp_overlap"):
            frame = loaded if isinstance(loaded, str) else ask(lambda: getattr(loaded, name)(visualize=False))
            answer[name] = frame if isinstance(frame, str) else json.loads(frame.to_json(orient="records"))
        print(json.dumps(answer), flush=True)
"""


def hta(python: str, paths: list[Path]) -> Iterator[dict[str, Any]]:
    """What HTA answers, trace by trace: rows of its tables, or the message of its failure."""
    command = [python, "-c", HTA_PROGRAM, *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
    if process.returncode:
        raise SystemExit(f"{python} cannot run HTA: exit code {process.returncode}")


def ours(path: Path) -> dict[str, Any]:
    """What `lostflops report` says of the whole trace, or the message of its failure."""
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder, "run"))
        for command in (["ingest", str(path), "-o", run], ["report", run, "--window", "trace", "--json"]):
            program = [sys.executable, "-m", "lostflops", *command]
            outcome = subprocess.run(program, capture_output=True, text=True, check=False)
            if outcome.returncode:
                return {"error": (outcome.stderr.strip().splitlines() or ["no message"])[-1]}
    answer: dict[str, Any] = json.loads(outcome.stdout)
    return answer


def figures_of_hta(answer: dict[str, Any]) -> dict[str, Any]:
    breakdown, overlap = answer["get_temporal_breakdown"], answer["get_comm_comp_overlap"]
    if isinstance(breakdown, str):
        return {"error": breakdown or "no message"}
    (row,) = breakdown
    return {
        "window_us": row["kernel_time(us)"],
        "idle_us": row["idle_time(us)"],
        "compute_us": row["compute_time(us)"],
        "other_us": row["non_compute_time(us)"],
        "overlap_pct": None if isinstance(overlap, str) else overlap[0]["comp_comm_overlap_pctg"],
    }


def figures_of_ours(answer: dict[str, Any]) -> dict[str, Any]:
    """In the terms of HTA, which divides the hidden time by that of all communication."""
    if "error" in answer:
        return answer
    times = {line["line"]: line["ns"] / 1000 for line in answer["ledger"]["lines"]}
    overlap = answer["overlap"]
    communication = sum(us for line, us in times.items() if line.startswith("comm."))
    idle = sum(us for line, us in times.items() if line.startswith("idle.") or line == "unexplained")
    return {
        "window_us": sum(times.values()),
        "idle_us": idle,
        "compute_us": times.get("compute", 0.0),
        "other_us": communication + times.get("copy", 0.0),
        "comm_us": communication,
        "copy_us": times.get("copy", 0.0),
        "overlap_pct": 100 * overlap["hidden_ns"] / overlap["comm_ns"] if overlap["comm_ns"] else None,
    }


def print_table(name: str, rows: dict[str, dict[str, Any]]) -> None:
    print(f"\n{name}")
    print(" " * 20 + "".join(f"{figure:>14}" for figure in FIGURES))
    for who, figures in rows.items():
        if "error" in figures:
            print(f"  {who:<18}  {figures['error']}")
            continue
        cells = (figures.get(figure) for figure in FIGURES)
        print(f"  {who:<18}" + "".join(f"{'-':>14}" if cell is None else f"{cell:>14,.2f}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="where the traces lie (*.json.gz)")
    parser.add_argument("--hta-python", required=True, metavar="PATH", help="an interpreter that has HTA 0.5.0")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all answers there")
    options = parser.parse_args()
    paths = sorted(options.folder.glob("*.json.gz"))
    if not paths:
        parser.error(f"no *.json.gz in {options.folder}")
    everything: dict[str, dict[str, Any]] = {}
    for answer in hta(options.hta_python, paths):
        path = Path(answer["path"])
        whole = everything.setdefault(path.name, {})
        whole[HTA_WHOLE if answer["last"] else HTA] = answer
        if answer["last"]:
            whole[OURS] = ours(path)
            of_hta = {who: figures_of_hta(whole[who]) for who in (HTA, HTA_WHOLE)}
            print_table(path.name, {OURS: figures_of_ours(whole[OURS]), **of_hta})
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
