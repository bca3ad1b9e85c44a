"""Whether timelines in a browser tell what JSON says of every span, stretch and event. Each tells how many values it
compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lostflops.core.pictures import Spans, Strips
from lostflops.core.units import format_ns

if TYPE_CHECKING:
    from playwright.sync_api import Locator

# Reads what the panel below a timeline says: its name, and the rest as pairs.
PANEL = """const told = () => {
  const all = (name) => [...box.querySelectorAll(`.panel ${name}`)].map((one) => one.textContent);
  const values = all("dd");
  return [all("strong")[0], Object.fromEntries(all("dt").map((name, at) => [name, values[at]]))];
};"""
# Goes to an address, as Back does and as a link does that somebody opens.
ADDRESS = """const goTo = (query) => {
  history.replaceState(null, "", `#${box.closest("article").id}?${query}`);
  dispatchEvent(new PopStateEvent("popstate"));
};"""
FOUND = f"""(box, [text, most]) => {{
  {PANEL}
  const input = box.querySelector(".search");
  // The first hit is the first in sight.
  box.querySelector(".rows canvas").dispatchEvent(new KeyboardEvent("keydown", {{ key: "0" }}));
  input.value = text;
  return Array.from({{ length: most }}, () => {{
    input.dispatchEvent(new KeyboardEvent("keydown", {{ key: "Enter" }}));
    return told();
  }});
}}"""


def spans_are(where: Locator, _: Spans, told: dict[str, Any]) -> int:
    """Found by a word that is in the name of each, in order of time."""
    compared = 0
    for word in sorted({one["name"].split()[0] for one in told["spans"]}):
        spans = [one for one in told["spans"] if word in one["name"]]
        spans.sort(key=lambda one: (one["start"], one["row"]))
        for (name, pairs), one in zip(where.evaluate(FOUND, [word, len(spans)]), spans, strict=True):
            assert (name, pairs["kind"], pairs["row"]) == (one["name"], one["kind"], told["rows"][one["row"]])
            assert pairs["start"] == f"{format_ns(one['start'])} from the start"
            assert pairs["duration"] == format_ns(one["stop"] - one["start"])
            compared += 5
    return compared


STRETCHES = f"""(box, [row, count]) => {{
  {PANEL}
  {ADDRESS}
  const canvas = box.querySelector(".rows canvas");
  const press = (key, times, shiftKey = false) => {{
    for (let at = 0; at < times; at++) canvas.dispatchEvent(new KeyboardEvent("keydown", {{ key, shiftKey }}));
    return told();
  }};
  goTo("order=by rank");
  press("ArrowUp", 100);
  press("ArrowDown", row);
  press("ArrowLeft", count + 1, true);
  return Array.from({{ length: count }}, (_, at) => press("ArrowRight", at ? 1 : 0, true));
}}"""
EVENTS = f"""(box, events) => {{
  {PANEL}
  {ADDRESS}
  return events.map(([rank, event]) => {{
    goTo(`ranks=${{rank}}&event=${{rank}}.${{event}}&open=${{rank}}`);
    return told();
  }});
}}"""


def strips_are(where: Locator, _: Strips, told: dict[str, Any]) -> int:
    """Every stretch of every row."""
    compared, bin_ns = 0, (told["stop_ns"] - told["start_ns"]) / told["bins"]
    for place, (row, stretches) in enumerate(told["rows"].items()):
        shown = where.evaluate(STRETCHES, [place, len(stretches)])
        wanted = [(kind or "nothing recorded", row, format_ns(round(bins * bin_ns))) for kind, bins in stretches]
        lasts = [pairs["duration"].split(",")[0] for _, pairs in shown]
        found = [(kind, pairs["row"], last) for (kind, pairs), last in zip(shown, lasts, strict=True)]
        assert found == wanted
        compared += len(wanted)
    return compared


def events_are(where: Locator, told: dict[str, Any], rows: list[dict[str, Any]]) -> int:
    """What stands below rows, shown by an address as the evidence of a finding is."""
    shown = where.evaluate(EVENTS, [[one["rank"], one["event"]] for one in rows])
    for (name, pairs), one in zip(shown, rows, strict=True):
        assert one["name"].startswith(name.removesuffix("…")), "names may be cut"
        assert (pairs["kind"], pairs["rank"]) == (one["kind"], f"rank {one['rank']}")
        assert pairs["event"] == str(one["event"])
        assert pairs["duration"] == format_ns(one["dur"])
        assert pairs["start"].startswith(f"{format_ns(one['start'] - told['start_ns'])} from the start")
    return 6 * len(rows)
