"""Whether tables, figures, ledgers and findings in a browser show what JSON says. Each tells how many values it
compared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lostflops.account.facts.kernel_names import short
from lostflops.core.estimate import Estimate
from lostflops.core.results import Field, Findings, Lines, Pairs, Portions, Section, Table, Waterfall
from lostflops.core.units import format_bytes, format_ns, format_percent, format_share
from lostflops.show.report.values import format_value, format_values

if TYPE_CHECKING:
    from playwright.sync_api import Locator

FIRST = 20
"""Rows of a table that are shown before it is unfolded."""
MOST_EVENTS = 12
"""That a finding shows links to."""

Rows = list[dict[str, Any]]


def table_is(where: Locator, table: Table, rows: Rows) -> int:
    """With the columns that are shown when they are asked for."""
    if not rows:
        assert "No rows" in where.inner_text()
        return 0
    if not all(field.shown for field in table.fields):
        where.locator(".grid input[type=checkbox]").check()
    cells = where.locator("tbody tr").evaluate_all(
        "rows => rows.map((row) => [...row.cells].map((one) => one.title || one.textContent))"
    )
    assert len(cells) == min(len(rows), FIRST)
    for row, texts in zip(rows, cells, strict=False):
        for field, text in zip(table.fields, texts, strict=True):
            wanted = format_value(_value_of(row, field), field.unit)
            assert wanted in (text, short(text)), (table.name, field.name)
    return len(cells) * len(table.fields)


def _value_of(row: dict[str, Any], field: Field) -> Any:
    return row[field.within][field.name] if field.within else row[field.name]


def figures_are(where: Locator, block: Pairs | Section, told: dict[str, Any]) -> int:
    pairs = [pair for pair in block.items if pair.shown]
    for pair in pairs:
        value = told[pair.name]
        wanted = format_values(value, pair.unit) if isinstance(value, list) else format_value(value, pair.unit)
        assert where.locator(f"dd[data-name='{pair.name}']").inner_text() == wanted, pair.name
    return len(pairs)


def section_is(where: Locator, block: Section, told: dict[str, Any]) -> int:
    return figures_are(where, block, told) + table_is(where, block.table, told[block.table.name])


def waterfall_is(where: Locator, _: Waterfall, told: dict[str, Any]) -> int:
    bars = told["waterfall"]
    rows = where.locator(".fall[data-bar]")
    assert rows.locator(".name").all_inner_texts() == [bar["line"] for bar in bars]
    assert rows.locator(".points").all_inner_texts() == [format_share(bar["points"] / 100) for bar in bars]
    reached = told["reason"] if told["value"] is None else format_share(told["value"])
    assert reached in where.locator(".reached").inner_text()
    return len(bars)


UNFOLDED = """box => [...box.querySelectorAll(".unfolding > [data-row]")].map(function read(row) {
  const text = (name) => row.querySelector(name).textContent;
  const parts = [...row.querySelectorAll(":scope > .inside > [data-row]")];
  return [text(".name"), text(".figure"), text(".share"), parts.map(read)];
})"""


def ledger_is(where: Locator, block: Lines, told: dict[str, Any]) -> int:
    def wanted(line: dict[str, Any]) -> list[Any]:
        figure = format_ns(round(line["ns"] / block.per))
        return [line["line"], figure, format_share(line["share"]), [wanted(part) for part in line["parts"]]]

    lines = [line for line in told["lines"] if line["ns"]]
    assert where.evaluate(UNFOLDED) == [wanted(line) for line in lines]
    return sum(1 + len(line["parts"]) for line in lines)


def portions_are(where: Locator, block: Portions, told: Rows) -> int:
    """In the list, and in words for each tile of the map."""
    total = sum(item["bytes"] for item in told)
    full = [item for item in told if item["bytes"]]
    rows = [
        [
            item[block.key],
            format_bytes(item["bytes"]),
            format_share(item["share"]),
            [
                [part["name"], format_bytes(part["bytes"]), format_share(part["bytes"] / total), []]
                for part in item["parts"]
            ],
        ]
        for item in full
    ]
    assert where.evaluate(UNFOLDED) == rows
    where.locator(".tile").first.wait_for()
    tiles = where.locator(".tile").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
    wanted = [
        f"{item[block.key]}, {part['name']}: {format_bytes(part['bytes'])}, {format_share(part['bytes'] / total)}, "
        f"{part['count']} {'block' if part['count'] == 1 else 'blocks'}"
        for item in full
        for part in item["parts"]
    ]
    assert tiles == wanted
    return len(rows) + len(tiles)


def findings_are(where: Locator, _: Findings, told: Rows) -> int:
    cards = where.locator(".finding")
    assert [card.get_attribute("data-cause") for card in cards.all()] == [one["cause"] for one in told]
    compared = 0
    for card, one in zip(cards.all(), told, strict=True):
        words = card.text_content()
        wanted = [one["what"], one["fix"]]
        wanted += [f"Ranks{format_values(one['ranks'], '')}"] if one["ranks"] else []
        wanted += [
            *_saving(one),
            *([one["doubt"]] if one["doubt"] else []),
            *(text for part in one["evidence"] for text in _rests(part)),
        ]
        assert [text for text in wanted if text not in words] == [], one["cause"]
        compared += len(wanted)
    return compared


def cards_are(where: Locator, block: Findings, told: Rows) -> int:
    """The first findings: what each is, its fix, what that saves, and how many there are more."""
    cards = where.locator(".card")
    first = told[: block.most_shown]
    assert [card.get_attribute("data-cause") for card in cards.all()] == [one["cause"] for one in first]
    for card, one in zip(cards.all(), first, strict=True):
        words = card.text_content()
        title, *rest = re.split(r"(?<=[.:]) ", one["what"], maxsplit=1)
        wanted = [title.rstrip(".:"), *(text[0].upper() + text[1:] for text in rest), one["fix"]]
        if one["saving"] is not None and one["saving"]["low"] is not None and one["saving"]["low"] > 0:
            saves = "saves" if one["level"] == "found" else "may save"
            wanted.append(f"{saves} {format_percent(one['saving']['value'])}")
        assert [text for text in wanted if text not in words] == [], one["cause"]
    left = len(told) - len(first)
    assert where.get_by_text(f"{left} more in the diagnosis").count() == (left > 0)
    return 3 * len(first)


def _rests(part: dict[str, Any]) -> list[str]:
    """What a finding rests on, with the first of its places."""
    where = [("rank", part["ranks"]), ("step", part["steps"])]
    places = [f"{noun}{'s' if len(own) > 1 else ''} {format_values(own, '')}" for noun, own in where if own]
    events = [f"event {event} of rank {rank}" for rank, event in part["events"][:MOST_EVENTS]]
    return [part["what"], ", ".join(places), *events]


def _saving(one: dict[str, Any]) -> list[str]:
    """The same words as in Python, with step times and hours where the saving is sure."""
    if one["saving"] is None:
        return ["no time yet"]
    saving = Estimate(**one["saving"])
    times = one["prediction"] or {"measured_ns": 0, "predicted_ns": 0}
    is_exact = saving.kind != "bound" and times["measured_ns"]
    is_same = is_exact and abs(1 - times["predicted_ns"] / times["measured_ns"] - saving.value) < 0.005
    step = f"from {format_ns(times['measured_ns'])} to {format_ns(times['predicted_ns'])}" if is_same else ""
    hours = f"{one['rank_hours']:,.1f} rank-hours a day" + (f" (${one['usd']:,.0f})" if one["usd"] is not None else "")
    parts = [saving.text(), *((step, hours) if saving.is_gain else ())]
    return [f"{', '.join(filter(None, parts))}; based on {saving.source}"]


TURNED = """(box, positions) => positions.map(([change, value]) => {
  const knob = box.querySelector(`[data-knob="${change}"]`);
  const [toggle, slider, list] = ["button", "input[type=range]", "select"].map((kind) => knob.querySelector(kind));
  const radio = knob.querySelector(`input[type=radio][aria-label="${value}"]`);
  if (toggle) toggle.getAttribute("aria-pressed") === "true" || toggle.click();
  else if (radio) radio.click();
  else if (list) (list.value = value, list.dispatchEvent(new Event("change")));
  else for (let place = 0; place <= slider.max && slider.getAttribute("aria-valuetext") !== value; place += 1) {
    slider.value = place;
    slider.dispatchEvent(new Event("input"));
  }
  const figure = (name) => box.querySelector(`.figure.${name} strong`).textContent;
  return [figure("measured"), figure("predicted"), figure("gain"), box.querySelector(".sure").textContent];
})"""


def knobs_are(where: Locator, positions: list[tuple[str, str]], measured: int, told: Rows) -> int:
    """What each position predicts, one turned at a time."""
    for (change, _), shown, one in zip(positions, where.evaluate(TURNED, positions), told, strict=True):
        gain = 1 - one["predicted_ns"] / (measured * one["work"])
        words = "no change" if gain == 0 else f"{format_share(abs(gain))} {'shorter' if gain > 0 else 'longer'}"
        figures = [format_ns(measured * one["work"]), format_ns(one["predicted_ns"]), words]
        assert shown[:3] == figures, change
        low, high = (round(measured * one["work"] * (1 - one["saving"][end])) for end in ("high", "low"))
        assert shown[3].startswith(f"Range: {format_ns(low)} to {format_ns(high)}."), change
    return 5 * len(told)
