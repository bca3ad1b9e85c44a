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
            help="Run, or several with commas between them; patterns and folders of runs do.",
            show_default=False,
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same, of what is compared with A.", show_default=False)],
    *,
    margin: Annotated[
        str, typer.Option("--margin", metavar="PART", help="A difference within this is none, such as 2%.")
    ] = "2%",
    anyway: AnywayOption = False,
    as_markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> None:
    """Tell whether B is faster than A, by how much, and where.

    The answer is one of faster, slower, no difference and cannot tell. Give several runs of each, recorded in turns:
    runs of one job differ by more than their steps show.
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
