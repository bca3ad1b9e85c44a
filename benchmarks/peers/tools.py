"""The two peers: how each is installed, started as its documentation says, and read."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.instrument import HOLDERS, with_pytscope, with_traceml
from benchmarks.peers.judge import Said

TORCH: Final = "torch==2.13.0"
PATIENCE: Final = 600
FIRST: Final = ("nice", "-n", "-10") if os.geteuid() == 0 else ()
"""As in the clinic: what else the machine does should not hold ranks up."""
SCRIPTS: Final = {"train.py", "text.py", "by_hand.py"}
"""Loops of one process or of data parallelism. Neither says that it supports pipelines; pytscope says that it does not
yet support FSDP."""


class Failed(Exception):
    """A program failed, why, and what it printed last."""

    def __init__(self, why: str, printed: str = "") -> None:
        super().__init__(f"{why}\n{printed}".strip())
        self.why = why


@dataclass(frozen=True, slots=True)
class Start:
    """A script in a folder of its own that the peer may write to, with flags, on so many ranks."""

    folder: Path
    script: str
    flags: tuple[str, ...]
    ranks: int


@dataclass(frozen=True, slots=True)
class Peer:
    """`run(programs, start)` runs the job, and returns what the peer said."""

    name: str
    program: str
    version: str
    scripts: frozenset[str]
    instrument: Callable[[str, str, int], str]
    run: Callable[[Path, Start], list[Said]]


def installed(peer: Peer, folder: Path) -> Path:
    """The programs of an environment with torch and the peer; it is made where it is missing."""
    programs = folder / peer.name / "bin"
    if not (programs / peer.program).exists():
        _call([sys.executable, "-m", "venv", str(folder / peer.name)])
        _call([str(programs / "pip"), "install", "-q", TORCH])
        (folder / "constraints.txt").write_text(f"{TORCH}\n")
        pinned = f"{peer.name}=={peer.version}"
        _call([str(programs / "pip"), "install", "-q", "-c", str(folder / "constraints.txt"), pinned])
    return programs


def ask(peer: Peer, programs: Path, start: Start, jobs: Path) -> list[Said]:
    """Runs a copy of the script, with the lines that the peer needs, in the folder of the start."""
    shutil.copytree(jobs, start.folder, ignore=shutil.ignore_patterns("__pycache__"))
    script = start.folder / start.script
    source = peer.instrument(script.read_text(encoding="utf-8"), HOLDERS.get(start.script, ""), start.ranks)
    script.write_text(source, encoding="utf-8")
    return peer.run(programs, start)


def _run_traceml(programs: Path, start: Start) -> list[Said]:
    ports = ["--master-port", str(_free_port()), "--aggregator-port", str(_free_port())]
    words = ["run", start.script, "--nproc-per-node", str(start.ranks), "--run-name", "asked", *ports]
    _call([*FIRST, str(programs / "traceml"), *words, "--args", *start.flags], start.folder)
    return read_traceml(json.loads((start.folder / "logs" / "asked" / "final_summary.json").read_text()))


def read_traceml(summary: dict[str, Any]) -> list[Said]:
    """The verdict first, then what the sections of its summary add."""
    issues = [summary["primary_diagnosis"]]
    for section in ("step_time", "step_memory", "process", "system"):
        issues += summary.get(section, {}).get("issues") or []
    said: dict[str, Said] = {}
    for issue in issues:
        ranks = tuple(issue.get("ranks") or ())
        is_information = issue["severity"] == "info"
        if is_information and said:
            continue
        earlier = said.get(issue["kind"])
        if earlier is None or not earlier.ranks:
            said[issue["kind"]] = Said(issue["kind"], issue["status"], ranks, is_information)
    return list(said.values())


def _run_pytscope(programs: Path, start: Start) -> list[Said]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(start.ranks)]
    words = [*(torchrun if start.ranks > 1 else []), start.script, *start.flags]
    _call([*FIRST, str(programs / "python"), *words], start.folder)
    report = _call([str(programs / "pytscope"), "analyze", "pytscope"], start.folder)
    (start.folder / "report.txt").write_text(report, encoding="utf-8")
    return read_pytscope(report)


def read_pytscope(report: str) -> list[Said]:
    """Its findings in the order of the report: `[HIGH] title  (CODE)`."""
    said = []
    for title, code in re.findall(r"^ *\[(?:HIGH|MED|LOW) *\] (.+?) +\(([A-Z_]+\.[A-Z_]+)\)$", report, re.MULTILINE):
        line = re.search(r"recoverable \((\w+)\)", title)
        rank = re.match(r"Rank (\d+) ", title)
        said.append(Said(f"{code} {line[1]}" if line else code, title, (int(rank[1]),) if rank else ()))
    return said


def _call(words: Sequence[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failed("timed out") from None
    if done.returncode:
        raise Failed(f"exit code {done.returncode}", (done.stdout + done.stderr)[-2000:])
    return done.stdout


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


PEERS: Final = (
    Peer(
        "traceml-ai",
        "traceml",
        "0.5.0",
        frozenset(SCRIPTS | {"sharded.py"}),
        lambda source, holder, _: with_traceml(source, holder),
        _run_traceml,
    ),
    Peer(
        "pytscope",
        "pytscope",
        "0.2.1",
        frozenset(SCRIPTS),
        lambda source, holder, ranks: with_pytscope(source, holder, ranks=ranks),
        _run_pytscope,
    ),
)
