"""Losses of a capture and notes of the collector, counted by name, for table `stats`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

_OBSERVATIONS: Final = {
    "torn_frames": (
        "missing",
        "sections of the file that are not whole frames, e.g. because the writer was killed",
    ),
    "records_missing": ("missing", "records that are not in the file: their frame is torn or lost"),
    "repeated_records": ("note", "repeated records; the first one counts"),
    "records_dropped": ("dropped", "records that the collector lost because its buffer was full or a write failed"),
    "unknown_records": ("dropped", "records of a kind that this version does not know"),
    "malformed_records": ("dropped", "records with missing or invalid fields"),
    "malformed_entries": ("dropped", "entries of collectives with missing or invalid fields"),
    "ring_entries_lost": (
        "missing",
        "collectives that were overwritten in the Flight Recorder before the collector read them",
    ),
    "enqueues_without_group": ("missing", "collectives whose group the collector did not name; group_id is null"),
    "device_times_without_step": ("missing", "device times whose step is missing, or was recorded much earlier"),
    "samples_without_stack": ("dropped", "samples whose stack is missing"),
    "sessions_without_start": ("missing", "processes whose first record is missing: world size and host are unknown"),
    "killed": ("note", "processes without an end record: killed, or still running"),
    "windows_exported": ("note", "deep windows that were recorded"),
    "windows_skipped": ("note", "deep windows that were requested but not recorded"),
    "windows_failed": ("missing", "deep windows whose recording failed"),
    "collector_reduced": ("note", "times that the collector recorded less, to stay within its overhead limit"),
}
_BY_ENDING: Final = {"dropped": "dropped", "lost": "missing", "missing": "missing", "failed": "missing"}
_OF_ERRORS: Final = frozenset({"error", "errors"})
_LONGEST: Final = 300


class CaptureStats:
    """Counts by name; the first example of each is kept."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self._notes: Counter[str] = Counter()

    def add(self, what: str, count: int = 1, example: str = "") -> None:
        if count:
            self._counts[what] += count
            if example:
                self._reasons.setdefault(what, example[:_LONGEST])

    def note(self, what: str, count: int, reason: str) -> None:
        """Add what the collector counted itself; a name of ours is counted with ours."""
        if what in _OBSERVATIONS:
            self.add(what, count, reason)
        elif count:
            self._notes[what] += count
            self._reasons.setdefault(what, reason[:_LONGEST])

    def rows(self) -> Iterator[tuple[str, str, int, str]]:
        """Yield name, effect, count and reason of each observation."""
        for what, count in sorted(self._counts.items()):
            effect, meaning = _OBSERVATIONS[what]
            example = self._reasons.get(what)
            yield what, effect, _clamp_count(count), meaning + (f"; for example: {example}" if example else "")
        for what, count in sorted(self._notes.items()):
            yield what, _effect(what), _clamp_count(count), self._reasons.get(what) or "noted by the collector"


def _effect(what: str) -> str:
    """Return the effect of a collector's note, by the last word of its name.

    >>> _effect("hook_error"), _effect("samples_dropped"), _effect("no_profiler")
    ('missing', 'dropped', 'note')
    """
    last = what.rpartition("_")[2]
    return "missing" if last in _OF_ERRORS else _BY_ENDING.get(last, "note")


def _clamp_count(count: int) -> int:
    return min(count, (1 << 63) - 1)
