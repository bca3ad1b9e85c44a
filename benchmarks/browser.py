"""How the chromium of this machine is started for tests, measurements and screenshots."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

# Debian's chromium calls home unless it is told not to; a sandbox needs rights that containers lack.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def started(playwright: Playwright) -> Iterator[Browser]:
    """With a profile of its own, which ends with it."""
    browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
    try:
        yield browser
    finally:
        browser.close()
