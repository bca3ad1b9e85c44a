"""What a capture lost, and what the collector noted: counted by name, for table `stats`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

_OBSERVATIONS: Final = {
    "torn_frames": (
        "missing",
        "stretches of the file that are no whole frame, e.g. the writer was killed in it",
    ),
    "records_missing": ("missing", "records that are not in the file: the frame that held them is torn or lost"),
    "repeated_records": ("note", "records that stood in the file before; the first one counts"),
    "records_dropped": ("dropped", "records that the collector lost because its ring was full or a write failed"),
    "unknown_records": ("dropped", "records of a kind that this version does not know"),
    "malformed_records": ("dropped", "records that lack what their kind must hold, or hold something else"),
    "malformed_entries": ("dropped", "entries of collectives that lack something, or hold something else"),
    "ring_entries_lost": ("missing", "collectives that were overwritten in the ring before the collector read them"),
    "enqueues_without_group": ("missing", "collectives whose group the collector did not name; group_id is null"),
    "device_times_without_step": ("missing", "times of a device whose step did not arrive, or long before"),
    "samples_without_stack": ("dropped", "samples whose stack did not arrive"),
    "sessions_without_start": ("missing", "processes whose first record did not arrive: world size and host unknown"),
    "killed": ("note", "processes that did not say that they ended: killed, or still running"),
    "windows_exported": ("note", "deep windows that were recorded"),
    "windows_skipped": ("note", "deep windows that were asked for and not recorded"),
    "windows_failed": ("missing", "deep windows whose recording failed"),
    "collector_reduced": ("note", "times that the collector did less, to stay within its budget"),
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
        """What the collector counted itself; a name of ours is put among ours."""
        if what in _OBSERVATIONS:
            self.add(what, count, reason)
        elif count:
            self._notes[what] += count
            self._reasons.setdefault(what, reason[:_LONGEST])

    def rows(self) -> Iterator[tuple[str, str, int, str]]:
        """What, effect, count and reason."""
        for what, count in sorted(self._counts.items()):
            effect, meaning = _OBSERVATIONS[what]
            example = self._reasons.get(what)
            yield what, effect, _bounded(count), meaning + (f"; for example: {example}" if example else "")
        for what, count in sorted(self._notes.items()):
            yield what, _effect(what), _bounded(count), self._reasons.get(what) or "noted by the collector"


def _effect(what: str) -> str:
    """
    >>> _effect("hook_error"), _effect("samples_dropped"), _effect("no_profiler")
    ('missing', 'dropped', 'note')
    """
    last = what.rpartition("_")[2]
    return "missing" if last in _OF_ERRORS else _BY_ENDING.get(last, "note")


def _bounded(count: int) -> int:
    return min(count, (1 << 63) - 1)
