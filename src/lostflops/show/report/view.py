"""A page as plain data for the web UI: blocks with their kinds, and long columns as bytes outside the JSON.

An object with `blob` in the JSON refers to bytes, which are little-endian numbers of one type. JavaScript's numbers
hold 53 bits, so calendar times and longer integers are written as text. Values that only programs read are left out.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, Final

from lostflops.core.pictures import Counter, Events, RowStretches, Spans, Strips
from lostflops.core.results import Block, HeatMap, Page, Pair, Pairs, Result, Section, Stacks, Table, Timeline
from lostflops.core.units import format_time
from lostflops.show.report.columns import cells, forest
from lostflops.show.report.varints import deltas, varints

SCHEMA: Final = "lostflops.page/1"
LARGEST: Final = 2**53


class View:
    """Plain data with the bytes that it refers to."""

    def __init__(self) -> None:
        self.blobs: list[bytes] = []

    def blob(self, values: bytes, kind: str = "u1") -> dict[str, Any]:
        self.blobs.append(values)
        return {"blob": len(self.blobs) - 1, "type": kind}

    def page(self, page: Page) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "title": page.title,
            "glossary": dict(page.glossary),
            "missing": [list(one) for one in page.missing],
            "standing": page.standing,
            "results": [self.result(result) for result in page.results],
        }

    def result(self, result: Result) -> dict[str, Any]:
        return {
            "name": result.name,
            "title": result.title,
            "verdict": result.verdict,
            "notes": list(result.notes),
            "next_command": result.next_command,
            "blocks": [self.block(block) for block in result.blocks],
        }

    def block(self, block: Block) -> dict[str, Any]:
        match block:
            case Table():
                return {"kind": "Table", **_table(block)}
            case Pairs():
                return {"kind": "Pairs", **_plain(block), "items": _pairs(block.items)}
            case Section():
                return {"kind": "Section", **_plain(block), "items": _pairs(block.items), "table": _table(block.table)}
            case Strips():
                return self._strips(block)
            case HeatMap():
                return self._heat_map(block)
            case Stacks():
                return self._stacks(block)
            case Timeline():
                return {"kind": "Timeline", **_plain(_from_its_start(block))}
            case Spans():
                return {"kind": "Spans", **_plain(block), **_stretch(block)}
            case _:
                return {"kind": type(block).__name__, **_plain(block)}

    def _strips(self, block: Strips) -> dict[str, Any]:
        return {
            "kind": "Strips",
            "name": block.name,
            "title": block.title,
            **_stretch(block),
            "bins": block.bins,
            "kinds": list(block.kinds),
            "rows": [name for name, _ in block.rows],
            "codes": self.blob(b"".join(codes for _, codes in block.rows)),
            **_marks(block),
            "late": list(block.late),
            "cohorts": _plain(block.cohorts),
            "events": self.events(block.events) if block.events else None,
            "stretches": self._stretches(block.stretches) if block.stretches else None,
            "step_edges": None if block.step_edges is None else self.blob(deltas(block.step_edges)),
            "step_lines": None if block.step_lines is None else self.blob(varints(block.step_lines)),
        }

    def _stretches(self, stretches: RowStretches) -> dict[str, Any]:
        return {
            **self._columns(stretches, ("start", "ahead"), ("count", "kind", "dur", "late")),
            "rate": list(stretches.rate),
        }

    def events(self, events: Events) -> dict[str, Any]:
        """Return the events below rows; times and numbers are stored as differences, which are small."""
        meetings = events.meetings
        return {
            "rows": list(events.rows),
            "lanes": [[lane.row, lane.name, lane.events] for lane in events.lanes],
            "kinds": list(events.kinds),
            "names": list(events.names),
            **self._columns(events, ("start", "event", "launch"), ("dur", "kind", "name", "wait")),
            "meetings": {
                **self._columns(meetings, ("meeting", "row", "event", "arrived"), ("dur", "wait", "said")),
                "sayings": list(meetings.sayings),
                "left_out": meetings.left_out,
            },
            "left_out": events.left_out,
            "counters": self._counters(events.counters),
        }

    def _counters(self, counters: tuple[Counter, ...]) -> dict[str, Any]:
        """Return what each counter is with the number of its points, and the points of all, one after the other."""
        return {
            "each": [[one.row, one.name, one.unit, one.per, one.thinned, len(one.at)] for one in counters],
            "at": self.blob(deltas([time for one in counters for time in one.at])),
            "value": self.blob(deltas([value for one in counters for value in one.value])),
        }

    def _columns(self, block: Any, differing: tuple[str, ...], plain: tuple[str, ...]) -> dict[str, Any]:
        return {
            **{name: self.blob(deltas(getattr(block, name))) for name in differing},
            **{name: self.blob(varints(getattr(block, name))) for name in plain},
        }

    def _heat_map(self, block: HeatMap) -> dict[str, Any]:
        found = cells(block)
        return {
            "kind": "HeatMap",
            **_plain({field.name: getattr(block, field.name) for field in fields(block) if field.name != "rows"}),
            "rows": [name for name, _ in block.rows],
            "widths": [len(values) for _, values in block.rows],
            "places": found.places,
            "least": found.least,
            "values": self.blob(found.packed, found.kind),
        }

    def _stacks(self, block: Stacks) -> dict[str, Any]:
        found = forest(block)
        return {
            "kind": "Stacks",
            "name": block.name,
            "title": block.title,
            "names": found.names,
            "kinds": [block.kinds.get(name, "") for name in found.names],
            "frames": self.blob(found.frames, "u4"),
            "parents": self.blob(found.parents, "u4"),
            "samples": self.blob(found.samples, "u4"),
            "ns": self.blob(found.ns, "f8"),
        }


def _from_its_start(block: Timeline) -> dict[str, Any]:
    return {
        "name": block.name,
        "title": block.title,
        **_stretch(block),
        "at": [time - block.start for time in block.at],
        "total": block.total,
        "rows": block.rows,
        **_marks(block),
        "top": None if block.top is None else block.top - block.start,
    }


def _stretch(block: Spans | Strips | Timeline) -> dict[str, Any]:
    return {"began": format_time(block.start), "span": block.stop - block.start}


def _marks(block: Strips | Timeline) -> dict[str, Any]:
    return {"marks": [[number, time - block.start] for number, time in block.marks], "marked": block.marked}


def _table(table: Table) -> dict[str, Any]:
    """Return the part of a table that people see; `more` is for programs."""
    units = [field.unit for field in table.fields]
    rows = [[_value(value, unit) for value, unit in zip(row, units, strict=True)] for row in table.rows]
    return {
        "name": table.name,
        "title": table.title,
        "fields": _plain(table.fields),
        "rows": rows,
        "left_out": table.left_out,
        "most_shown": table.most_shown,
    }


def _pairs(items: tuple[Pair, ...]) -> list[dict[str, Any]]:
    return [{**_plain(pair), "value": _value(pair.value, pair.unit)} for pair in items]


def _value(value: Any, unit: str) -> Any:
    if unit == "time" and isinstance(value, int):
        return format_time(value)
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return [_value(one, unit) for one in value] if isinstance(value, tuple) else _plain(value)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST:
        return str(value)
    # JSON has no such numbers; a drawing leaves out what is not there.
    return None if isinstance(value, float) and not isfinite(value) else value


def pack_data(data: Mapping[str, Any], blobs: list[bytes]) -> list[str]:
    """Return the JSON and then the blobs, each deflated and as text without any character that is special in HTML."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    # The highest level takes eight times as long for a thirtieth less.
    return [b64encode(zlib.compress(one, 6)).decode() for one in (text, *blobs)]
