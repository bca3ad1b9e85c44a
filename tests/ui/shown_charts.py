"""Whether charts in a browser tell what JSON says of every cell, point and frame. Each tells how many values it
compared.

Keys are pressed inside the page, all at once: a round trip for each would take minutes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from lostflops.core.results import Field, HeatMap, Plot, Stacks, Timeline
from lostflops.core.units import format_bytes, format_ns, format_share
from lostflops.show.report.values import format_value

if TYPE_CHECKING:
    from playwright.sync_api import Locator

HINTS = {"gbs": " GB/s", "rate": " per s"}
NARROWEST = 1.0
"""Pixels; frames that are narrower may be left out of the drawing."""

# What the box beside a place of a chart says after each key: its heading, and the rest as pairs.
PRESSED = """(target, keys) => keys.map((key) => {
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const box = target.closest(".chart").querySelector(".callout");
  const all = (name) => [...box.querySelectorAll(name)].map((one) => one.textContent);
  const values = all("dd");
  return [box.querySelector("strong").textContent, Object.fromEntries(all("dt").map((name, at) => [name, values[at]]))];
})"""

Said = list[tuple[str, dict[str, str]]]
Rows = list[dict[str, Any]]


def _pressed(where: Locator, kind: str, keys: list[str]) -> Said:
    chart = where.locator(f".chart > {kind}")
    chart.wait_for()
    return [(heading, pairs) for heading, pairs in chart.evaluate(PRESSED, keys)]


def heat_map_is(where: Locator, block: HeatMap, told: Rows) -> int:
    keys, wanted = [], []
    for number, row in enumerate(told):
        named = row["values"].items() if block.columns else enumerate(row["values"], 1)
        cells = [(name if block.columns else f"{name} of {len(row['values'])}", value) for name, value in named]
        if number:
            keys += ["Home", "ArrowDown"]
            wanted.append(None)
        keys += [*(["Home"] if not number else []), *["ArrowRight"] * (len(cells) - 1)]
        wanted += [_cell(block, row["row"], *cell) for cell in cells]
    for shown, one in zip(_pressed(where, "canvas", keys), wanted, strict=True):
        assert one is None or shown == one
    return len(wanted)


def _cell(block: HeatMap, row: str, place: str, value: float | None) -> tuple[str, dict[str, str]]:
    said = "no value" if value is None else format_value(_whole(value, block.unit), block.unit)
    across = block.across or "column"
    return said, {block.down or "row": row, across: place}


def _whole(value: float, unit: str) -> float:
    """What has a unit of whole numbers is shown with it, whatever Python took it for."""
    return round(value) if unit in ("ns", "bytes", "flop", "flops", "count") else value


def plot_is(where: Locator, block: Plot, told: Rows) -> int:
    keys: list[str] = []
    wanted: Said = []
    for series in told:
        points = sorted(zip(series[block.x.name], series[block.y.name], strict=True), key=lambda point: point[0])
        keys += [*(["ArrowDown"] if wanted else []), "Home", *["ArrowRight"] * (len(points) - 1)]
        # Where the key for the next series leads to depends on what is near.
        wanted += [("", {})] if wanted else []
        wanted += [(series["series"], _point(block, *point)) for point in points]
    for shown, one in zip(_pressed(where, "svg", keys), wanted, strict=True):
        assert shown == one or not one[0]
    return len(wanted)


def _point(block: Plot, x: float, y: float) -> dict[str, str]:
    def said(field: Field, value: float) -> str:
        return format_value(_whole(value, field.unit), field.unit) + HINTS.get(field.unit, "")

    return {field.label or field.name: said(field, value) for field, value in ((block.x, x), (block.y, y))}


def over_time_is(where: Locator, _: Timeline, told: dict[str, Any]) -> int:
    wanted = []
    for column, at in enumerate(told["at_ns"]):
        step = max((one["step"] for one in told["steps"] if one["at_ns"] <= at), default=None)
        held = {name: values[column] for name, values in told["owners"].items() if values[column]}
        assert sum(held.values()) == told["bytes"][column]
        pairs = {name: format_bytes(size) for name, size in (held | {"total": told["bytes"][column]}).items()}
        wanted.append((format_ns(at - told["start_ns"]) + (f", step {step}" if step is not None else ""), pairs))
    assert _pressed(where, "svg", ["Home", *["ArrowRight"] * (len(wanted) - 1)]) == wanted
    assert where.locator(".top text").text_content() == f"peak {format_bytes(max(told['bytes']))}"
    return sum(len(pairs) for _, pairs in wanted)


def stacks_are(where: Locator, _: Stacks, told: Rows) -> int:
    """Of all frames that are wide enough, from the outermost down and the largest first."""
    samples: Counter[tuple[str, ...]] = Counter()
    times: Counter[tuple[str, ...]] = Counter()
    own: Counter[tuple[str, ...]] = Counter()
    for one in told:
        own[tuple(one["stack"])] += one["ns"]
        for end in range(len(one["stack"]) + 1):
            samples[tuple(one["stack"][:end])] += one["samples"]
            times[tuple(one["stack"][:end])] += one["ns"]
    where.locator("canvas[data-drawn]").wait_for()
    width = (where.locator("canvas").bounding_box() or {})["width"]
    least = NARROWEST * times[()] / width
    keys: list[str] = []
    wanted: Said = []

    def visit(path: tuple[str, ...]) -> None:
        children = [one for one in times if one[:-1] == path and len(one) > len(path) and times[one] >= least]
        for place, child in enumerate(sorted(children, key=lambda one: (times[one], one), reverse=True)):
            keys.append("ArrowRight" if place else "ArrowDown")
            wanted.append((child[-1], _frame(times[child], times[()], samples[child], own[child])))
            visit(child)
        if children:
            keys.append("ArrowUp")
            wanted.append((path[-1] if path else "all", _frame(times[path], times[()], samples[path], own[path])))

    visit(())
    for (heading, pairs), (name, numbers) in zip(_pressed(where, "canvas", keys), wanted, strict=True):
        assert (heading, pairs | numbers) == (name, pairs)
    return 4 * len(wanted)


def _frame(ns: int, whole: int, samples: int, own: int) -> dict[str, str]:
    shown = {"time": ns, "self time": own}
    return {
        **{name: format_ns(value) for name, value in shown.items()},
        "share of total": format_share(ns / whole),
        "samples": f"{samples:,}",
    }
