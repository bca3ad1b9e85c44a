"""Slices of one lane on as many Perfetto tracks as they need.

On a track, two slices must be nested or disjoint. Slices that overlap without nesting go to sibling tracks, which
Perfetto draws as one, so no time is changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from lostflops.show.export.packets import Packets, TrackPlace, begins, ends

_Track = tuple[bytes, tuple[bytes, bytes], list[tuple[int, bytes]]]
"""Bytes that begin and that end a slice of the track, and its open slices: when and how each ends."""


class SpreadSlices:
    """Slices of one lane, added in order of their start, of equals the longest first; `close` ends those that are still
    open."""

    def __init__(self, packets: Packets, place: TrackPlace, numbers: Iterator[int]) -> None:
        self._packets, self._place, self._numbers = packets, place, numbers
        self._tracks: list[_Track] = []

    def add(self, start: int, stop: int, edges: tuple[bytes, bytes], body: bytes) -> None:
        """Add a slice to the first track on which it is alone or within an open slice. `edges` are start and stop,
        encoded."""
        packets = self._packets
        for track in self._tracks:
            _, closing, still_open = track
            while still_open and still_open[-1][0] <= start:
                packets.end(closing, still_open.pop()[1])
            if not still_open or stop <= still_open[-1][0]:
                break
        else:
            track = self._another()
        packets.begin(track[0], edges[0], body)
        track[2].append((stop, edges[1]))

    def close(self) -> None:
        for _, closing, still_open in self._tracks:
            while still_open:
                self._packets.end(closing, still_open.pop()[1])

    def _another(self) -> _Track:
        number = next(self._numbers)
        self._packets.track(number, self._place)
        self._tracks.append((begins(number), ends(number), []))
        return self._tracks[-1]
