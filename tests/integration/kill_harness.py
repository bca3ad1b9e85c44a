"""Ingest in a process group of its own, killed at a chosen moment; and what must hold afterwards.

The group holds the ingest and its workers. A run must then be exactly what it was or exactly what it was to become.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import lostflops
from lostflops.ingest import ingest
from lostflops.store.manifest import FILE_NAME, load
from lostflops.store.run import Run
from lostflops.store.tables import TABLES
from tests.integration import faults

SOURCE = str(Path(lostflops.__file__).parents[1])
_INGEST = """
import sys
from lostflops.ingest import ingest
print("ready", flush=True)
ingest(sys.argv[3:], sys.argv[1], workers=int(sys.argv[2]), replace=True)
"""

State = tuple[tuple[str, int, str], ...] | None
"""Table, rows and checksum; None when there is no run."""


def write_trace(path: Path, rank: int, events: int, name: str = "aten::mm") -> Path:
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 10.0 * i, "dur": 5.5}
        for i in range(events)
    ]
    for i in range(0, events, 3):
        row = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10.0 * i + 2, "dur": 3.25}
        rows.append(row | {"args": {"device": 0, "stream": 7, "correlation": i}})
    info = {"backend": "nccl", "rank": rank, "world_size": 8}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": rows}))
    return path


def state(run_folder: Path) -> State:
    """What a run holds, whatever its files are called; raises where it cannot be read."""
    if not (run_folder / FILE_NAME).exists():
        return None
    found = []
    with Run.open(run_folder) as run:
        for table in TABLES:
            columns = ", ".join(f"{column.name}::VARCHAR" for column in table.columns)
            query = f"select count(*), coalesce(sum(hash({columns})), 0)::VARCHAR from {table.name}"
            [(rows, checksum)] = run.sql(query).fetchall()
            found.append((table.name, rows, checksum))
    return tuple(found)


def named_files(run_folder: Path) -> set[str]:
    if not (run_folder / FILE_NAME).exists():
        return set()
    return {file.path for files in load(run_folder).files.values() for file in files}


def leftovers(run_folder: Path, before: set[str]) -> list[str]:
    """Files in a run that its manifest does not name, nor did the one before: replaced parts stay for open readers."""
    known = named_files(run_folder) | before | {FILE_NAME, ".lock"}
    paths = (path.relative_to(run_folder) for path in run_folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if str(path) not in known)


def living(session: int) -> list[int]:
    """Processes of a session that still run; those that only wait to be reaped do not count."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(folder.name))
    return found


def wait_for(condition: Callable[[], bool], seconds: float, every: float = 0.01) -> bool:
    """Whether `condition()` came true in time."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(every)
    return True


@dataclass(frozen=True)
class Scene:
    """Sources and the run they go to; `template` is the run before, absent for a new one."""

    folder: Path
    sources: tuple[str, ...]
    template: Path | None
    old: State
    new: State

    @property
    def out(self) -> Path:
        return self.folder / "run"

    def reset(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        if self.template is not None:
            shutil.copytree(self.template, self.out)

    def start(self, code: str = _INGEST, workers: int = 2, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, str(self.out), str(workers), *self.sources]
        return subprocess.Popen(
            command,
            start_new_session=True,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": SOURCE} | environment,
        )


def new_run(folder: Path) -> Scene:
    sources = tuple(str(write_trace(folder / "traces" / f"r{rank}.json", rank, 300 + rank)) for rank in range(4))
    return _scene(folder, sources, None)


def existing_run(folder: Path) -> Scene:
    """Ranks 0 to 2 are there; rank 1 changes, rank 2 comes from another file, ranks 3 and 4 are new."""
    before = [write_trace(folder / "before" / f"r{rank}.json", rank, 200 + rank) for rank in range(3)]
    template = folder / "template"
    ingest(before, template, workers=1)
    sources = [write_trace(folder / "traces" / f"r{rank}.json", rank, 300 + rank, "aten::add") for rank in (2, 3, 4)]
    sources.append(write_trace(before[1], 1, 444, "aten::mul"))
    return _scene(folder, tuple(map(str, sources)), template)


def _scene(folder: Path, sources: tuple[str, ...], template: Path | None) -> Scene:
    scene = Scene(folder, sources, template, state(template) if template is not None else None, None)
    scene.reset()
    ingest(sources, scene.out, workers=1, replace=True)
    return Scene(folder, sources, template, scene.old, state(scene.out))


@dataclass
class Tally:
    """Ends of killed ingests: `old`, `new`, or what was wrong."""

    ends: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def note(self, scene: Scene, group: int, moment: str) -> None:
        try:
            end = self._judge(scene, group)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run is broken
            end = f"{type(error).__name__}: {error}"
        if end in ("old", "new"):
            self.ends[end] += 1
        else:
            self.broken.append(f"{moment}: {end}")

    @staticmethod
    def _judge(scene: Scene, group: int) -> str:
        if not wait_for(lambda: not living(group), 5):
            return f"processes still run: {living(group)}"
        found = state(scene.out)
        end = "old" if found == scene.old else "new" if found == scene.new else f"neither old nor new: {found}"
        if end in ("old", "new"):
            before = named_files(scene.out)
            ingest(scene.sources, scene.out, workers=1, replace=True)
            if state(scene.out) != scene.new:
                return f"was {end}, and the following ingest did not lead to the new state"
            if leftovers(scene.out, before):
                return f"was {end}, and the following ingest left {leftovers(scene.out, before)[:5]}"
        return end


def duration(scene: Scene) -> tuple[float, float]:
    """Seconds from start to the first work, and from there to the end: the median of three ingests."""
    found = []
    for _ in range(3):
        scene.reset()
        began = time.monotonic()
        with scene.start() as process:
            assert process.stdout is not None
            process.stdout.readline()
            ready = time.monotonic()
            assert process.wait() == 0
        found.append((ready - began, time.monotonic() - ready))
    return sorted(found, key=lambda times: times[1])[1]


def kill_at_random(scene: Scene, kills: int, seed: int = 0) -> Tally:
    """SIGKILL to the whole group, at moments spread evenly over an ingest, a few of them before it does anything."""
    chance, tally = random.Random(seed), Tally()
    starting, working = duration(scene)
    for number in range(kills):
        scene.reset()
        with scene.start() as process:
            assert process.stdout is not None
            if chance.random() < 0.05:
                moment = chance.uniform(0, starting)
            else:
                process.stdout.readline()
                moment = (number + chance.random()) / kills * working * 1.1
            time.sleep(moment)
            for member in living(process.pid):  # the ingest and its workers
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        tally.note(scene, process.pid, f"kill {number} after {moment:.3f} s of {working:.3f}")
    return tally


def kill_at_operations(scene: Scene, kills: int, library: Path, seed: int = 0) -> Tally:
    """SIGKILL from outside to the whole group, when all its processes together have begun so many file operations."""
    chance, tally = random.Random(seed), Tally()
    total = _count_operations(scene, library)
    for number in range(kills):
        scene.reset()
        target = int((number + chance.random()) / kills * total)
        with _counted(scene, library) as (process, seen):
            wait_for(lambda: seen() >= target or process.poll() is not None, 120, every=0.0005)  # noqa: B023
            for member in living(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        tally.note(scene, process.pid, f"kill {number} at operation {target} of {total}")
    return tally


@contextmanager
def _counted(scene: Scene, library: Path) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], int]]]:
    """Start an ingest; yield it, and how many operations its processes have begun."""
    counter = scene.folder / "counter"
    counter.write_bytes(bytes(faults.COUNTERS))
    with counter.open("rb") as file, mmap.mmap(file.fileno(), faults.COUNTERS, prot=mmap.PROT_READ) as shared:
        environment = faults.preload(library, faults.COUNTED, -1, scene.out)
        with scene.start(**environment, LOSTFLOPS_FAULTS_COUNTER=str(counter)) as process:
            yield process, lambda: int.from_bytes(shared[:8], sys.byteorder)


def _count_operations(scene: Scene, library: Path) -> int:
    scene.reset()
    with _counted(scene, library) as (process, seen):
        assert process.wait() == 0
        return seen()
