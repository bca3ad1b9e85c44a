"""`lostflops diff`: is one job faster than another?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, MarkdownOption, command, show
from lostflops.cli.run_lists import AnywayOption, part, runs_of
from lostflops.cli.scope import bar_of

EXAMPLE = "lostflops diff before-1,before-2,before-3 'after-*'"


def diff(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="One or more runs, separated by commas; globs and folders of runs work too.",
            show_default=False,
        ),
    ],
    b: Annotated[
        str, typer.Argument(metavar="B", help="Runs to compare with A, in the same form.", show_default=False)
    ],
    *,
    margin: Annotated[
        str, typer.Option("--margin", metavar="SHARE", help="Ignore differences smaller than this, e.g. 2%.")
    ] = "2%",
    anyway: AnywayOption = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write one HTML page of both runs to this file.", show_default=False
        ),
    ] = None,
    as_markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs: which is faster, and where.

    The answer is faster, slower, no difference or inconclusive. The exit code is 0 for all four; lostflops gate has an
    exit code for each. One run per side is enough for large differences; small ones need several per side, recorded
    alternately. --html writes a page instead, with the median steps of both runs on one time axis.
    """
    from lostflops.api import diff as compare
    from lostflops.api import diff_page
    from lostflops.core.errors import UsageError
    from lostflops.explain.compare.recordings import mark_no_steps

    if html and as_markdown:
        raise UsageError("--html writes a page: it cannot be combined with --markdown")
    before, after, smallest = runs_of(a), runs_of(b), part(margin, "--margin")
    with bar_of("runs") as progress:
        if html:
            result = diff_page(before, after, html, margin=smallest, anyway=anyway, progress=progress)
        else:
            result = compare(before, after, margin=smallest, anyway=anyway, progress=progress)
    following = command("gate", "--baseline", a, "--candidate", b, "--max-regress", "3%")
    has_steps = not mark_no_steps([*before, *after])
    show(replace(result, next_command=following if has_steps else ""), as_json, as_markdown=as_markdown)
