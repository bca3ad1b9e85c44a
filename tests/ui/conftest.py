"""Pages in a real browser. A page that says something on the console, asks for anything outside of itself or breaks its
own policy fails the test that opened it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from benchmarks.browser import chromium, started

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page, Request

# What they compare is told where they fail, as in tests themselves.
pytest.register_assert_rewrite(
    "tests.ui.saved", "tests.ui.shown_charts", "tests.ui.shown_figures", "tests.ui.shown_timelines"
)

# Scripts of the test harness run outside of the page's policy, so what they hear is what the page's own scripts tried.
TELL_VIOLATIONS = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} forbids ${event.blockedURI} ${event.sample}`));"""
INSIDE = ("data:", "blob:", "about:")

OpenPage = Callable[..., "Page"]


# Not for the session: while it lives, no other test of the process can run an event loop of its own.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One for all tests of this folder."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if chromium() is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright, started(playwright) as browser:
        yield browser


@pytest.fixture
def complaints() -> list[str]:
    """What pages of this test did that no page may do. A test that expects one takes it out."""
    return []


@pytest.fixture
def open_page(browser: Browser, complaints: list[str]) -> Iterator[OpenPage]:
    """`open_page(file, width=390, dark=True)` gives a page that has drawn itself; a server is opened by its address.
    `before` is called with a page that has not gone there yet."""
    with opening(browser, complaints) as opened:
        yield opened


@contextmanager
def opening(browser: Browser, complaints: list[str]) -> Iterator[OpenPage]:
    contexts = []

    def opened(
        where: Path | str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        before: Callable[[Page], None] = lambda _: None,
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        context.add_init_script(TELL_VIOLATIONS)
        page = context.new_page()
        address = where.resolve().as_uri() if isinstance(where, Path) else where
        _listen(page, address, complaints)
        before(page)
        page.goto(address)
        page.locator("html[data-ready=yes]").wait_for(state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints, "\n".join(complaints)


def _listen(page: Page, address: str, complaints: list[str]) -> None:
    page.on("console", lambda said: complaints.append(f"console: {said.text}") if said.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("popup", lambda popup: complaints.append(f"popup: {popup.url}"))

    def judge(request: Request) -> None:
        if not _own(request.url, address):
            complaints.append(f"asks: {request.url}")

    def dismiss(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("request", judge)
    page.on("dialog", dismiss)


def _own(url: str, address: str) -> bool:
    """Whether a request stays inside the page: the file itself, or anything of the server that gave it."""
    if url.startswith(INSIDE):
        return True
    asked, own = urlsplit(url), urlsplit(address)
    if own.scheme == "file":
        return asked.scheme == "file" and asked.path == own.path
    return (asked.scheme, asked.netloc) == (own.scheme, own.netloc)
