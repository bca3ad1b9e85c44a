"""What stands in a capture, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lostflops.collect.capture import FOLDER, read_frames


def records(run: Path, kind: str) -> dict[int, list[dict[str, Any]]]:
    """Records of one kind by rank."""
    found: dict[int, list[dict[str, Any]]] = {}
    for path in sorted((run / FOLDER).rglob("*.capture")):
        frames, damaged = read_frames(path)
        assert damaged == 0
        for frame in frames:
            found.setdefault(frame.rank, []).extend(record for record in frame.records if record["kind"] == kind)
    return found


def share(steps: list[dict[str, Any]], phase: str) -> float:
    """Of the time of all steps but the first."""
    later = steps[1:]
    return sum(step[phase] or 0 for step in later) / sum(step["stop"] - step["start"] for step in later)
