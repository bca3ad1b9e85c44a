"""`lostflops open`: a run as a page in the browser."""

import os
import sys
import webbrowser
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import bar_of
from lostflops.store.places import remote

if TYPE_CHECKING:
    from lostflops.core.results import Result

EXAMPLE = "lostflops open run"


def open(  # noqa: A001 - a verb is named as it is typed
    run: RunArgument,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write the page.  "
            "[default: report.html in the run; a temporary folder if the run is read-only or in S3]",
            show_default=False,
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Open everything about a run in the browser.

    All views of the run in one HTML file that works offline, so you can send it to others.
    """
    file = out or default_file(run)
    written = write_page(run, file)
    if browser and not open_in_browser(file):
        how = "No browser found: copy the file to a machine that has one."
        written = replace(written, notes=(*written.notes, how))
    show(written, as_json)


def write_page(run: Path, file: Path) -> "Result":
    """Write all views of a run into a file."""
    from lostflops.api import open as open_run

    with open_run(run) as opened_run, bar_of("questions") as progress:
        written = opened_run.page(file, progress=progress)
    return replace(written, next_command=command("diff", run, "NEW_RUN"))


def default_file(run: Path) -> Path:
    """In the run, which it then moves with; runs of others are often read-only, and some are in a store."""
    address = remote(run)
    if address is not None:
        return Path(mkdtemp(prefix="lostflops-")) / f"{address.name}.html"
    if not run.is_dir() or os.access(run, os.W_OK):
        return run / "report.html"
    return Path(mkdtemp(prefix="lostflops-")) / f"{run.resolve().name}.html"


def open_in_browser(file: Path) -> bool:
    """Whether a browser took it."""
    return can_show() and webbrowser.open(file.resolve().as_uri())


def can_show() -> bool:
    """Without a display there may be a browser for terminals, which shows no picture and takes the terminal."""
    return sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
