"""Slices of one lane on as many tracks as they need: on a track of Perfetto one slice holds another or they are apart.

Slices that overlap without nesting go to sibling tracks, which Perfetto draws as one: no time is changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from lostflops.export.packets import Packets, Place, on


class Spread:
    """Takes slices in order of their start, of equals the longest first; `close` ends those that are still open."""

    def __init__(self, packets: Packets, place: Place, numbers: Iterator[int]) -> None:
        self._packets, self._place, self._numbers = packets, place, numbers
        self._tracks: list[tuple[bytes, list[tuple[int, bytes]]]] = []

    def add(self, start: int, stop: int, edges: tuple[bytes, bytes], body: bytes) -> None:
        """`edges` are start and stop as they are written."""
        track, open_slices = self._free(start, stop)
        self._packets.begin(track, edges[0], body)
        open_slices.append((stop, edges[1]))

    def close(self) -> None:
        for track, open_slices in self._tracks:
            while open_slices:
                self._packets.end(track, open_slices.pop()[1])

    def _free(self, start: int, stop: int) -> tuple[bytes, list[tuple[int, bytes]]]:
        """The first track on which it stands alone, or within one that is open."""
        for track, open_slices in self._tracks:
            while open_slices and open_slices[-1][0] <= start:
                self._packets.end(track, open_slices.pop()[1])
            if not open_slices or stop <= open_slices[-1][0]:
                return track, open_slices
        number = next(self._numbers)
        self._packets.track(number, self._place)
        self._tracks.append((on(number), []))
        return self._tracks[-1]
