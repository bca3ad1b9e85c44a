"""A plot of a verb, in an SVG file that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lostflops.core.results import Result

PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Write a plot to this SVG file.", show_default=False)
]


def check_plot(file: Path | None, option: str = "--plot") -> None:
    """Raise an error if no SVG can be written to this file, before minutes are spent on answers."""
    from lostflops.core.errors import UsageError
    from lostflops.show.report.html import check_file

    if file is None:
        return
    if file.suffix.lower() != ".svg":
        raise UsageError(f"{option} writes SVG: name the file {file.with_suffix('.svg')}")
    check_file(file)


def save_plot(result: Result, file: Path | None) -> None:
    from lostflops.show.report import svg

    if file is not None:
        with file.open("w", encoding="utf-8") as stream:
            svg.write(result, stream)
