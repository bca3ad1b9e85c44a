"""Write the page of a run, and open it in a browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lostflops.cli.output import command
from lostflops.cli.scope import bar_of

if TYPE_CHECKING:
    from lostflops.core.results import Result


def write_page(run: Path, file: Path) -> Result:
    """Write all views of a run into a file."""
    from lostflops.cli.scope import open_run

    with open_run(run) as opened_run, bar_of("questions") as progress:
        written = opened_run.page(file, progress=progress)
    return replace(written, next_command=command("diff", run, "NEW_RUN"))


def open_in_browser(file: Path) -> bool:
    """Open a file in a browser; return whether one took it."""
    return can_show() and webbrowser.open(file.resolve().as_uri())


def can_show() -> bool:
    """Return whether a browser can show pictures here.

    Without a display there may be a browser for terminals, which shows no picture and takes over the terminal.
    """
    return sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
