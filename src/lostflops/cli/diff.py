"""`lostflops diff`: is one job faster than another?"""

from __future__ import annotations

from dataclasses import replace
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
            help="Run, or several separated by commas; patterns and folders of runs work too.",
            show_default=False,
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same for what is compared with A.", show_default=False)],
    *,
    margin: Annotated[
        str, typer.Option("--margin", metavar="PART", help="Smaller differences count as none, such as 2%.")
    ] = "2%",
    anyway: AnywayOption = False,
    as_markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs: which is faster, and where.

    The answer is faster, slower, no difference or inconclusive; the exit code is 0 for all four, gate has one for each.
    One run of each decides large differences; several, recorded in turns, decide small ones.
    """
    from lostflops.compare import recorded
    from lostflops.compare.diff import diff as compared
    from lostflops.compare.sides import read

    before, after, smallest = runs_of(a), runs_of(b), part(margin, "--margin")
    if recorded.mark_no_steps([*before, *after]):
        show(recorded.diff(before, after, anyway=anyway), as_json, as_markdown=as_markdown)
        return
    with bar_of("runs") as progress:
        pair = read(before, after, anyway=anyway, accounted=True, progress=progress)
    following = command("gate", "--baseline", a, "--candidate", b, "--max-regress", "3%")
    show(replace(compared(pair, smallest), next_command=following), as_json, as_markdown=as_markdown)
