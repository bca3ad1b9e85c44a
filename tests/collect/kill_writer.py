"""What a writer acknowledged survives `kill -9` at any moment: python tests/collect/kill_writer.py --kills 1000

Each child writes records into the same file as those before it, and tells through a pipe how many are acknowledged. It
is killed at a random moment; then every acknowledged record must be read back once, in order, and none that was never
put.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from lostflops.collect import writer as writing
from lostflops.collect.capture import Frame, rank_file, read_frames

FILES = 25
"""Children that share a file."""


def record(number: int) -> dict[str, Any]:
    """Of every size, up to frames of several MB: only a long write can be torn."""
    return {"kind": "note", "number": number, "filler": "x" * (number * 7919 % 5000)}


def child(folder: Path, session: str, pipe: int) -> None:
    writing.PAUSE = 0.0005  # type: ignore[misc]
    writer = writing.Writer(folder, 0, session, lambda: None)
    writer.start()
    number = told = 0
    while True:
        if number - writer.acknowledged_records < writing.RING // 2:
            for _ in range(50):
                writer.put(record(number))
                number += 1
        else:
            time.sleep(0.0005)
        if writer.acknowledged_records > told:
            told = writer.acknowledged_records
            os.write(pipe, told.to_bytes(8, "little"))


def acknowledged(pipe: int) -> int:
    """The last number that arrived."""
    last = 0
    while data := os.read(pipe, 8 << 10):
        last = int.from_bytes(data[-8:], "little")
    return last


def kill_one(folder: Path, session: str, pause: float) -> int:
    """Run a child, kill it `pause` seconds after its first word; what it said was acknowledged."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reads)
            child(folder, session, writes)
        finally:
            os._exit(1)
    os.close(writes)
    select.select([reads], [], [], 60)
    time.sleep(pause)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return acknowledged(reads)
    finally:
        os.close(reads)


def judge(frames: list[Frame], session: str, told: int) -> str | None:
    """What is wrong with a session, if anything."""
    found: list[dict[str, Any]] = []
    for frame in (frame for frame in frames if frame.session == session):
        if frame.first != len(found):
            return f"record {len(found)} is followed by {frame.first}"
        found += frame.records
    if len(found) < told:
        return f"{told - len(found)} acknowledged records are lost"
    wrong = [number for number, got in enumerate(found) if got != record(number)]
    return f"record {wrong[0]} was never put" if wrong else None


def kill_many(folder: Path, kills: int, seed: int) -> tuple[int, int, list[str]]:
    """Records that were acknowledged, torn stretches, and what went wrong."""
    chance = random.Random(seed)
    total, torn, troubles = 0, 0, []
    for first in range(0, kills, FILES):
        place = folder / str(first)
        told = {
            f"s{number}": kill_one(place, f"s{number}", chance.random() * 0.05)
            for number in range(first, min(first + FILES, kills))
        }
        frames, damaged = read_frames(rank_file(place, 0))
        torn += damaged
        total += sum(told.values())
        judged = ((session, judge(frames, session, said)) for session, said in told.items())
        troubles += [f"{session}: {trouble}" for session, trouble in judged if trouble]
        rank_file(place, 0).unlink()
    return total, torn, troubles


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        total, torn, troubles = kill_many(Path(folder), chosen.kills, chosen.seed)
    print(f"{chosen.kills} kills, {total} acknowledged records, {torn} torn frames, {len(troubles)} troubles")
    print("\n".join(troubles))
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
