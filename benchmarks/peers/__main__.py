"""Two other tools on the real jobs of the clinic: what they say beside what is true.

    python -m benchmarks.peers --environments envs                 # all; makes an environment for each tool
    python -m benchmarks.peers --only slow_device --keep runs
    python -m benchmarks.peers.render --ours clinic.json           # docs/explanation/compared.md

Each job is run sick, or healthy where that is what it is, once per tool. What they said goes to
benchmarks/peers/results, one file for each tool; jobs that are run again are replaced in it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.peers.tools import PEERS, TORCH, Failed, Peer, Start, ask, installed
from clinic.patients import Patient
from clinic.real import REAL
from clinic.record import JOBS

KINDS = {"pipeline.py": "pipelines", "sharded.py": "FSDP"}
RESULTS = Path(__file__).with_name("results")
STEPS = 50
"""traceml-ai wants 20 for a confident diagnosis; pytscope's README leaves out 10."""


def result(peer: Peer, patient: Patient, programs: Path, folder: Path) -> dict[str, Any]:
    job = patient.job
    told: dict[str, Any] = {"name": patient.name, "causes": list(patient.causes)}
    if job is None:
        return told | {"left_out": "not run: several hosts"}
    told |= {"script": job.script, "flags": job.flags, "ranks": job.ranks}
    if job.script not in peer.scripts:
        return told | {"left_out": f"not supported: {KINDS[job.script]}"}
    start = Start(folder / peer.name / patient.name, job.script, (*job.flags.split(), "--steps", str(STEPS)), job.ranks)
    told |= {"on": datetime.now(UTC).isoformat(timespec="seconds"), "load": round(os.getloadavg()[0], 1)}
    try:
        return told | {"said": [one.to_json() for one in ask(peer, programs, start, JOBS)]}
    except Failed as error:
        print(f"{patient.name}: {peer.name}: {error}", file=sys.stderr)
        return told | {"failed": error.why}


def keep(peer: Peer, told: dict[str, Any], results: Path) -> None:
    path = results / f"{peer.name}.json"
    there = json.loads(path.read_text(encoding="utf-8"))["jobs"] if path.exists() else []
    jobs = {one["name"]: one for one in there} | {told["name"]: told}
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {TORCH}"
    order = {patient.name: place for place, patient in enumerate(REAL)}
    kept = sorted((job for name, job in jobs.items() if name in order), key=lambda job: order[job["name"]])
    results.mkdir(exist_ok=True)
    whole = {"tool": peer.name, "version": peer.version, "machine": machine, "steps": STEPS, "jobs": kept}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, default=Path("peer-environments"), metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=[patient.name for patient in REAL], metavar="NAME")
    parser.add_argument("--peers", nargs="+", choices=[peer.name for peer in PEERS], metavar="TOOL")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where runs stay; else they are removed")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    peers = [
        (peer, installed(peer, asked.environments)) for peer in PEERS if not asked.peers or peer.name in asked.peers
    ]
    with tempfile.TemporaryDirectory() as removed:
        folder = (asked.keep or Path(removed)).absolute()
        for patient in (one for one in REAL if not asked.only or one.name in asked.only):
            for peer, programs in peers:
                told = result(peer, patient, programs.absolute(), folder)
                keep(peer, told, asked.results)
                words = told.get("left_out") or told.get("failed") or ", ".join(one["words"] for one in told["said"])
                print(f"{patient.name:32}{peer.name:12}{words}", flush=True)


if __name__ == "__main__":
    main()
