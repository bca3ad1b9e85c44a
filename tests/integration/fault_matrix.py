"""Kill and I/O errors at every file operation: python tests/integration/fault_matrix.py --kills 10000 --errors 2000

Each subject is hit at every operation of its first input, and then at those of other inputs until all faults are given.
Linux only, and it needs a C compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.integration import faults, kill_harness  # noqa: E402 - found by the path above
from tests.integration.fault_subjects import SUBJECTS, Remote, Subject  # noqa: E402
from tests.integration.faults import ERRORS, KILLS, Ended, Fault, Forks  # noqa: E402


@dataclass
class Tally:
    """Faults of one subject, and what was wrong after them."""

    target: int
    hits: Counter[str] = field(default_factory=Counter)
    """By name of the fault; those whose operation was not reached do not count."""
    inputs: int = 0
    operations: int = 0
    """Of the first input."""
    was_complete: bool = False
    """Whether each operation of the first input was hit."""
    missed: int = 0
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.hits.total() < self.target and self.missed < 100 + self.target


FAULTS = {"kills": KILLS, "errors": ERRORS}


def moments(kinds: str, which: Sequence[Fault]) -> Iterator[tuple[Fault, int]]:
    for at, kind in enumerate(kinds):
        yield from ((fault, at) for fault in which if fault.can_hit(kind))


def spread(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most that many items, spread evenly over all, with the first and the last."""
    if len(items) <= most:
        return list(items)
    return [items[number * (len(items) - 1) // max(1, most - 1)] for number in range(most)]


def hit_subject(kind: type[Subject], forks: Forks, targets: dict[str, int], first_seed: int = 0) -> dict[str, Tally]:
    """Hit one subject as often as `targets` say, with one input after the other."""
    tallies = {what: Tally(target) for what, target in targets.items() if target}
    seed = first_seed
    while any(tally.is_open for tally in tallies.values()):
        subject = kind(forks, seed)
        kinds = subject.count()
        for what, tally in tallies.items():
            if tally.is_open:
                hit_input(subject, kinds, FAULTS[what], tally)
        seed += 1
    return tallies


def hit_input(subject: Subject, kinds: str, which: Sequence[Fault], tally: Tally) -> None:
    """Hit the operations of one input, whose kinds are given."""
    began, planned = time.monotonic(), list(moments(kinds, which))
    chosen = spread(planned, tally.target - tally.hits.total())
    if not tally.inputs:
        tally.operations, tally.was_complete = len(kinds), len(chosen) == len(planned)
    tally.inputs += 1
    for fault, at in chosen:
        subject.reset()
        ended = subject.forks.hit(subject.work, fault, at)
        if not ended.hit:
            tally.missed += 1
            continue
        tally.hits[fault.name] += 1
        if wrong := judge(subject, ended, fault):
            about = f"{subject.name}, input {subject.seed}, {fault.name} at {at} ({ended.hit})"
            tally.broken.append(f"{about}: {wrong}")
    tally.seconds += time.monotonic() - began


def judge(subject: Subject, ended: Ended, fault: Fault) -> str:
    if fault in KILLS and ended.signal != 9:
        return f"it was to be killed, but ended with {ended.signal} {ended.error}"
    if fault not in KILLS and ended.signal:
        return f"ended by signal {ended.signal}: {ended.stderr[-300:]}"
    try:
        return str(subject.judge(ended))
    except BaseException as error:  # noqa: BLE001 - whatever it is, something is broken
        return f"{type(error).__name__}: {error}"


def hit_all(folder: Path, names: Sequence[str], kills: int, errors: int, seed: int) -> dict[str, dict[str, Tally]]:
    place = folder / "place"
    forks = Forks(place)
    chosen = [kind for kind in SUBJECTS if not names or kind.name in names]
    all_kills, all_errors = sum(kind.share for kind in chosen), sum(kind.error_share for kind in chosen)
    found: dict[str, dict[str, Tally]] = {}
    with faults.own_places(place):
        for kind in chosen:
            targets = {
                "kills": round(kills * kind.share / all_kills),
                "errors": round(errors * kind.error_share / all_errors),
            }
            found[kind.name] = hit_subject(kind, forks, targets, seed)
            for what, tally in found[kind.name].items():
                print(describe(kind.name, what, tally), flush=True)
    return found


def describe(name: str, what: str, tally: Tally) -> str:
    every = "each operation" if tally.was_complete else "some operations"
    lines = [
        f"{name}: {tally.hits.total()} {what}, {len(tally.broken)} broken; {tally.seconds:.0f} s",
        f"  {tally.inputs} inputs, {every} of {tally.operations}: {dict(tally.hits)}",
        *(f"  {one}" for one in tally.broken[:8]),
    ]
    return "\n".join(lines)


def kill_from_outside(folder: Path, library: Path, kills: int, seed: int) -> bool:
    """Kill ingests of several processes, by operation and by time; return whether every run is whole."""
    is_whole = True
    for make in (kill_harness.new_run, kill_harness.existing_run):
        scene = make(folder / make.__name__)
        share = kills // 4
        for name, tally in (
            ("operation", kill_harness.kill_at_operations(scene, share, library, seed)),
            ("time", kill_harness.kill_at_random(scene, share, seed)),
        ):
            print(f"kill -9 by {name}, {make.__name__}: {dict(tally.ends)}, {len(tally.broken)} broken")
            print(*tally.broken[:8], sep="\n", flush=True)
            is_whole = is_whole and not tally.broken
    return is_whole


@contextmanager
def serving_objects(names: Sequence[str]) -> Iterator[str]:
    """Serve objects if a subject needs it; the server is slow to import."""
    if names and Remote.name not in names:
        yield ""
        return
    from tests.made_store import serving

    with serving() as endpoint:
        yield endpoint


def start_with_library(
    folder: Path, library: Path, endpoint: str, words: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run this program with the library."""
    environment = os.environ | {
        "LD_PRELOAD": str(library),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "LOSTFLOPS_WORKERS": "1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key-of-tests",
        "AWS_SECRET_ACCESS_KEY": "secret-of-tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    command = [sys.executable, __file__, "--folder", str(folder), *words]
    return subprocess.run(command, env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--errors", type=int, default=0)
    parser.add_argument("--real", type=int, default=0, help="kills of whole processes from outside")
    parser.add_argument("--seed", type=int, default=0, help="first input")
    parser.add_argument("--subject", action="append", default=[])
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.folder is None:
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            library = faults.build(Path(folder))
            if library is None:
                print("no C compiler: nothing was tested", file=sys.stderr)
                return 2
            if chosen.real and not kill_from_outside(Path(folder), library, chosen.real, chosen.seed):
                return 1
            with serving_objects(chosen.subject) as endpoint:
                return start_with_library(Path(folder), library, endpoint, sys.argv[1:])
    found = hit_all(chosen.folder, chosen.subject, chosen.kills, chosen.errors, chosen.seed)
    if chosen.json is not None:
        data = {name: {what: vars(tally) for what, tally in own.items()} for name, own in found.items()}
        chosen.json.write_text(json.dumps(data, indent=1))
    return 1 if any(tally.broken for own in found.values() for tally in own.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
