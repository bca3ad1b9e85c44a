"""Rows of a trace by scanning its text: fields of scanned events, with codes of the recording.

It imports numba, so it is imported where a trace is large enough to be worth that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from lostflops.ingest.common.columns import Array, Texts
from lostflops.ingest.formats.kineto.event_fields import source_line, stream_key
from lostflops.ingest.formats.kineto.rows import KNOWN_PHASES, KinetoRows
from lostflops.ingest.formats.kineto.scan import ScanColumn
from lostflops.ingest.formats.kineto.scanner import CodeMap, Rows, Scan, Scanner
from lostflops.ingest.formats.kineto.schema import Args

_COLUMN_OF_FIELD: Final = {column.name.lower(): column for column in ScanColumn}
_TIMED, _METADATA = ord("X"), ord("M")
_KNOWN_PHASES: Final = tuple(map(ord, KNOWN_PHASES))
_ARROW_PHASES: Final = (ord("s"), ord("f"))
_MEMORY, _LAUNCH_ARROW, _FORWARD_BACKWARD = 1, 2, 3
_MARKS: Final = {"[memory]": _MEMORY, "ac2g": _LAUNCH_ARROW, "fwdbwd": _FORWARD_BACKWARD}
"""Names and categories that show what an event without a duration is for."""


class ScannedRows:
    """Turns the text of a trace into rows, piece by piece."""

    def __init__(self, rows: KinetoRows) -> None:
        self._rows = rows
        self._scanner = Scanner()
        self._codes = _ScanCodes(self._scanner, rows)

    def scan(self, piece: bytes) -> Scan | None:
        """Return the events of a piece; None if it must be decoded into objects."""
        return self._scanner.scan(piece)

    def add(self, scan: Scan) -> None:
        """Add the events of the last piece."""
        by_category = self._group_by_category(scan)
        ordered = np.concatenate([np.empty(0, np.intp), *(rows for _, rows in by_category)])
        start, dur = scan.rows[:, ScanColumn.START][ordered], scan.rows[:, ScanColumn.DURATION][ordered]
        names = self._codes.names[scan.rows[:, ScanColumn.NAME][ordered]].astype(np.uint32)
        fields = [(category, ScannedFields(scan, rows, self._codes)) for category, rows in by_category]
        self._rows.add_batches(fields, names, start, dur)
        self._rows.add_untimed(scan.decode(self._find_untimed(scan)))

    def _group_by_category(self, scan: Scan) -> list[tuple[str, Rows]]:
        """Return the timed events of each category, in the order in which categories first occur."""
        timed = np.flatnonzero(scan.rows[:, ScanColumn.PHASE] == _TIMED)
        category = self._codes.categories[scan.rows[:, ScanColumn.CATEGORY][timed]]
        present, first = np.unique(category, return_index=True)
        texts = self._codes.category_texts.texts()
        return [(texts[code] or "", timed[category == code]) for code in present[np.argsort(first)].tolist()]

    def _find_untimed(self, scan: Scan) -> Rows:
        """Return the events of other phases that any row or count comes from."""
        rows = np.flatnonzero(scan.rows[:, ScanColumn.PHASE] != _TIMED)
        phase = scan.rows[:, ScanColumn.PHASE][rows]
        category, name = (
            self._codes.marks[scan.rows[:, column][rows]] for column in (ScanColumn.CATEGORY, ScanColumn.NAME)
        )
        is_arrow = np.isin(phase, _ARROW_PHASES) & (category == _FORWARD_BACKWARD)
        is_other = (phase == _METADATA) | ~np.isin(phase, _KNOWN_PHASES)
        wanted: Rows = rows[(category != _LAUNCH_ARROW) & (is_arrow | is_other | (name == _MEMORY))]
        return wanted


class _ScanCodes:
    """Codes of one scanner as codes of the recording."""

    def __init__(self, scanner: Scanner, rows: KinetoRows) -> None:
        vocabulary = rows.vocabulary
        names, details, grids, sources = vocabulary.names, vocabulary.details, vocabulary.grids, vocabulary.sources
        self.scanner = scanner
        self.category_texts = Texts()
        self.names = CodeMap(lambda code: names[scanner.text(code)], names)
        self.details = CodeMap(lambda code: details[scanner.raw(code)], details)
        self.grids = CodeMap(lambda code: grids[scanner.raw(code)], grids)
        self.sources = CodeMap(lambda code: sources[source_line(scanner.raw(code))], sources)
        self.categories = CodeMap(lambda code: self.category_texts[scanner.text(code)])
        self.marks = CodeMap(lambda code: _MARKS.get(scanner.text(code), 0))
        self.threads = CodeMap(lambda code: int(rows.find_lanes([("t", *scanner.lane(code)[:2])])[0]))
        self.streams = CodeMap(lambda code: int(rows.find_lanes([stream_key(*scanner.lane(code))])[0]))


class ScannedFields:
    """Fields of some events of a scan."""

    def __init__(self, scan: Scan, rows: Rows, codes: _ScanCodes) -> None:
        self._scan, self._rows, self._map = scan, rows, codes

    def __len__(self) -> int:
        return self._rows.size

    def only(self, rows: Rows) -> ScannedFields:
        return ScannedFields(self._scan, self._rows[rows], self._map)

    def integers(self, field: str) -> npt.NDArray[np.int64]:
        return self._column(_COLUMN_OF_FIELD[field])

    def whole_numbers(self, field: str) -> Array:
        return self._column(_COLUMN_OF_FIELD[field])

    def numbers(self, field: str) -> npt.NDArray[np.float64]:
        column = _COLUMN_OF_FIELD[field]
        scale = self._column(ScanColumn(column + 1))
        # Both are exact as floats, so their quotient is the nearest float, as a parser returns it.
        return np.where(scale > 0, self._column(column) / np.maximum(scale, 1), np.nan)

    def details(self, field: str) -> npt.NDArray[np.uint32]:
        return self._map.details[self._column(_COLUMN_OF_FIELD[field])].astype(np.uint32)

    def grids(self, field: str) -> npt.NDArray[np.uint32]:
        return self._map.grids[self._column(_COLUMN_OF_FIELD[field])].astype(np.uint32)

    def sources(self) -> npt.NDArray[np.uint32] | None:
        stacks = self._column(ScanColumn.CALL_STACK)
        return self._map.sources[stacks].astype(np.uint32) if stacks.any() else None

    def threads(self) -> npt.NDArray[np.int32]:
        return self._map.threads[self._column(ScanColumn.LANE)].astype(np.int32)

    def streams(self) -> npt.NDArray[np.int32]:
        return self._map.streams[self._column(ScanColumn.LANE)].astype(np.int32)

    def is_collective(self) -> npt.NDArray[np.bool_]:
        return self._column(ScanColumn.COLLECTIVE) > 0

    def names(self) -> list[str]:
        return [self._map.scanner.text(code) for code in self._column(ScanColumn.NAME).tolist()]

    def args_of(self, rows: Rows) -> Iterable[tuple[int, Args]]:
        events = self._scan.decode(self._rows[rows])
        return [(row, event.args) for row, event in zip(rows.tolist(), events, strict=True)]

    def _column(self, column: ScanColumn) -> npt.NDArray[np.int64]:
        values: npt.NDArray[np.int64] = self._scan.rows[:, column][self._rows]
        return values
