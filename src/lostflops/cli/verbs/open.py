"""`lostflops open`: a run as a page in the browser."""

import os
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer

from lostflops.cli.browser import open_in_browser, write_page
from lostflops.cli.output import JsonOption, RunArgument, show
from lostflops.store.places import remote

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


def default_file(run: Path) -> Path:
    """Return the file of the page: in the run, so that it moves with it, or in a temporary folder if the run is
    read-only or in a store."""
    address = remote(run)
    if address is not None:
        return Path(mkdtemp(prefix="lostflops-")) / f"{address.name}.html"
    if not run.is_dir() or os.access(run, os.W_OK):
        return run / "report.html"
    return Path(mkdtemp(prefix="lostflops-")) / f"{run.resolve().name}.html"
