"""Opens the page of each run in a headless chromium and keeps a picture of its first screen and of each view."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from browser import started
from playwright.sync_api import sync_playwright

from lostflops.show.pages.page import page_of
from lostflops.show.report.html import write_page
from lostflops.store.run import Run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

THEMES = ("light", "dark")
WIDTHS = (1440, 2560, 390)
HEIGHTS = {1440: 900, 2560: 1440, 390: 844}
TALLEST = 2400
"""A picture that is taller is cut: nobody looks at it as one."""
# Every result is drawn, and no timeline has a frame to come; what scrolling starts, starts within two frames.
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
RESTS = """() => document.documentElement.dataset.ready === "yes"
  && !document.querySelector(".blocks.waiting, .timeline[data-moving], .pane .summing")"""
REST_MS = 120_000
PHONE, LAPTOP = 390, 1440
DOCUMENTED = (
    ("report-light", "light", LAPTOP, ""),
    ("report-dark", "dark", LAPTOP, ""),
    ("phone-dark", "dark", PHONE, ""),
    ("timeline-light", "light", LAPTOP, "Show me"),
    ("timeline-dark", "dark", LAPTOP, "Show me"),
    ("whatif-dark", "dark", LAPTOP, "Try it"),
)
"""Pictures of the documentation: name, theme, width, and the button of the first finding that leads there."""


def rest(page: Page) -> None:
    """Wait until a page shows what it will."""
    page.evaluate(FRAMES)
    page.wait_for_function(RESTS, timeout=REST_MS)


def document(browser: Browser, file: Path, folder: Path) -> None:
    """Take the pictures of the documentation."""
    for name, theme, width, button in DOCUMENTED:
        scale = 2 if width == PHONE else 1
        context = browser.new_context(
            viewport={"width": width, "height": HEIGHTS[width]}, color_scheme=theme, device_scale_factor=scale
        )
        page = context.new_page()
        page.goto(file.resolve().as_uri())
        rest(page)
        if button:
            page.locator("#overview .card").first.get_by_role("button", name=button).click()
            rest(page)
            # What was landed on is held in sight for a second.
            page.wait_for_timeout(1500)
            rest(page)
        page.screenshot(path=folder / f"{name}.png")
        context.close()


def take(browser: Browser, file: Path, theme: str, width: int, views: Sequence[str] = ()) -> None:
    context = browser.new_context(viewport={"width": width, "height": HEIGHTS[width]}, color_scheme=theme)
    page = context.new_page()
    page.goto(file.resolve().as_uri())
    rest(page)
    stem = f"{file.stem}-{theme}-{width}"
    if not views or "first" in views:
        page.screenshot(path=file.parent / f"{stem}-first.png")
    for name in [article.get_attribute("id") for article in page.locator("article").all()]:
        if views and name not in views:
            continue
        article = page.locator(f"article[id='{name}']")
        article.scroll_into_view_if_needed()
        rest(page)
        tall = min(TALLEST, int((article.bounding_box() or {"height": 0})["height"]) + 200)
        page.set_viewport_size({"width": width, "height": max(HEIGHTS[width], tall)})
        article.evaluate("article => article.scrollIntoView()")
        rest(page)
        page.screenshot(path=file.parent / f"{stem}-{name}.png")
        page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
    context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run, or a page that was written before")
    parser.add_argument("--view", action="append", default=[], help="only this one: first, report, comm, ...")
    parser.add_argument("--theme", choices=THEMES)
    parser.add_argument("--width", type=int, choices=WIDTHS)
    parser.add_argument("--docs", action="store_true", help="the six of the documentation, of the first run")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    themes = (options.theme,) if options.theme else THEMES
    widths = (options.width,) if options.width else WIDTHS
    with sync_playwright() as playwright, started(playwright) as browser:
        for path in options.runs:
            file = options.folder / f"{path.stem}.html"
            if path.is_file():
                file.write_bytes(path.read_bytes())
            else:
                with Run.open(path) as run, file.open("w", encoding="utf-8") as stream:
                    write_page(page_of(run), stream)
            if options.docs:
                document(browser, file, options.folder)
                file.unlink()
                break
            for theme, width in product(themes, widths):
                take(browser, file, theme, width, options.view)


if __name__ == "__main__":
    main()
