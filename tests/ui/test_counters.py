"""Counters below an open rank in a browser: rows that are named, and values that are those of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lostflops.account.align.one_clock import OneClock
from lostflops.core.pictures import Counter, Strips
from lostflops.core.results import Page
from lostflops.core.units import format_bytes
from lostflops.explain.analyze.timeline import timeline
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.report.html import write_page
from lostflops.store.run import Run
from tests.ui.made_run import recorded_run

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

    from tests.ui.conftest import OpenPage

AXIS, ROW, COUNTER, LABELS = 22, 22, 36, 128
RANK = 2
OPENED = f"#timeline?open={RANK}&order=by%20rank"
NAMES = ["memory", "launch queue", "steps/s"]
SHARES = (0.03, 0.11, 0.2, 0.31, 0.42, 0.5, 0.63, 0.77, 0.85, 0.93)

# What is written on canvases while the pointer moves, and where.
WRITTEN = """() => {
  window.written = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
    window.written.push([text.trim(), y]);
    return write.call(this, text, x, y, ...rest);
  };
}"""

# Where the pointer is, as a share of the time.
POINTED = f"""(canvas) => canvas.addEventListener("pointermove", (event) => {{
  const width = Math.floor(canvas.parentElement.clientWidth) - {LABELS};
  window.pointed = (event.clientX - canvas.getBoundingClientRect().left - {LABELS}) / width;
}}, {{ once: true }})"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with Run.open(recorded_run(tmp_path_factory.mktemp("counted"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def strips(run: Run) -> Strips:
    (found,) = timeline(run).blocks
    assert isinstance(found, Strips)
    return found


@pytest.fixture(scope="module")
def file(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("page") / "page.html"
    with found.open("w", encoding="utf-8") as stream:
        write_page(Page("made", (timeline(run),), GLOSSARY), stream)
    return found


def opened(open_page: OpenPage, file: Path, hash_: str = OPENED) -> Tab:
    tab = open_page(file.resolve().as_uri() + hash_)
    tab.locator(".timeline .rows canvas").scroll_into_view_if_needed()
    return tab


def point(tab: Tab, share: float, y: float) -> float:
    """Move the pointer; return the share of the time at which the page sees it."""
    canvas = tab.locator(".timeline .rows canvas")
    canvas.evaluate(POINTED)
    box = canvas.bounding_box()
    assert box is not None
    tab.mouse.move(box["x"] + LABELS + share * (box["width"] - LABELS), box["y"] + y)
    tab.wait_for_timeout(50)
    pointed: float = tab.evaluate("window.pointed")
    return pointed


def middle(counter: int) -> int:
    """Height of the middle of a counter's row: below the axis and the rows of ranks up to its own."""
    return AXIS + ROW * (RANK + 1) + COUNTER * counter + COUNTER // 2


def written(tab: Tab) -> dict[str, float]:
    tab.evaluate(WRITTEN)
    point(tab, 0.5, AXIS + 5)
    return dict(tab.evaluate("window.written"))


def test_an_open_rank_has_a_row_for_each_counter(open_page: OpenPage, file: Path, strips: Strips) -> None:
    told = written(opened(open_page, file))
    assert strips.events is not None
    counters = {one.name: one for one in strips.events.counters if one.row == RANK}
    assert [name for name in told if name in NAMES] == NAMES == list(counters)
    assert [round(told[name] - middle(place)) for place, name in enumerate(NAMES)] == [-7, -7, -7]
    for name in NAMES:
        assert any(text.startswith(f"max {largest(counters[name])}") for text in told), name


def largest(counter: Counter) -> str:
    most = max(counter.value)
    return format_bytes(most) if counter.unit == "bytes" else f"{most / counter.per:.3g}"


def test_a_closed_rank_has_none(open_page: OpenPage, file: Path) -> None:
    told = written(opened(open_page, file, "#timeline"))
    assert not set(NAMES) & set(told)


def test_the_pointer_is_told_what_the_tables_say(open_page: OpenPage, file: Path, run: Run, strips: Strips) -> None:
    tab = opened(open_page, file)
    clock, compared = OneClock.of(run), 0
    for share in SHARES:
        for place, name in enumerate(NAMES):
            time = strips.start + int(point(tab, share, middle(place)) * (strips.stop - strips.start))
            [own] = clock.own(RANK, np.array([time])).tolist()
            told = tab.locator(".tip").inner_text()
            assert told.startswith(f"{name} {expected(run, name, own)} · "), (share, told)
            assert told.endswith(f" · rank {RANK}")
            compared += 1
    assert compared == 30


def expected(run: Run, name: str, moment: int) -> str:
    match name:
        case "memory":
            rows = run.rows(f"select time, allocated from memory where rank = {RANK} and time <= {moment}")
            # Of two at the same time the later one holds; rows are in the order of the trace.
            return format_bytes(max(reversed(rows), key=lambda row: row[0])[1])
        case "launch queue":
            [(depth,)] = run.rows(
                f"select count(*) from events k join events r using (rank, correlation) where rank = {RANK} "
                f"and k.kind in ('kernel', 'comm', 'memcpy', 'memset') and r.kind = 'runtime' "
                f"and r.start <= {moment} and k.start > {moment}"
            )
            return str(depth)
        case _:
            rows = run.rows(f"select device_start, device_stop from steps where rank = {RANK} order by step")
            starts = [*(start for start, _ in rows), rows[-1][1]]
            step = max(place for place, start in enumerate(starts) if start <= moment)
            return f"{1e9 / (starts[step + 1] - starts[step]):.3g}"


def test_a_counter_is_not_selected(open_page: OpenPage, file: Path) -> None:
    tab = opened(open_page, file)
    point(tab, 0.4, middle(0))
    before = tab.url
    tab.mouse.down()
    tab.mouse.up()
    tab.wait_for_timeout(500)
    assert tab.url == before
