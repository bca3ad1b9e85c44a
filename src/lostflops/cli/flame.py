"""`lostflops flame`: in which functions the host loses time."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import RankOption, StepOption, WindowOption, rank_bar

EXAMPLE = "lostflops flame run -o lost.svg --line idle.python"


def flame(
    run: RunArgument,
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the flame graph to this file.", show_default=False),
    ] = None,
    line: Annotated[
        list[str] | None,
        typer.Option(
            "--line",
            metavar="LINE",
            help="Only this line of the ledger; can be repeated.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All lines of the ledger, not only lost time.")] = False,
    collapsed: Annotated[bool, typer.Option("--collapsed", help="Write folded stacks (text) instead of SVG.")] = False,
    window: WindowOption = None,
    rank: RankOption = None,
    step: StepOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show in which functions the host loses time.

    Each stack sample counts towards the ledger line of its moment. Shows the samples on lines that the host is
    responsible for; -o draws them as a flame graph (SVG). --collapsed without -o prints the folded stacks.
    """
    from lostflops.account.ledger.lines import LINES
    from lostflops.api import open as open_run
    from lostflops.core.errors import UsageError
    from lostflops.show.report import folded, svg

    if everything and line:
        raise UsageError("--all and --line cannot be combined: give only one")
    if collapsed and as_json:
        raise UsageError("JSON contains the stacks too: leave out --collapsed or --json")
    with open_run(run) as opened, rank_bar() as progress:
        result = opened.flame(
            lines=LINES if everything else line or (),
            window=window,
            rank=rank or (),
            step=step or (),
            progress=progress,
        )
    if out is not None:
        with out.open("w", encoding="utf-8") as stream:
            (folded if collapsed else svg).write(result, stream)
    if collapsed and out is None:
        folded.write(result, sys.stdout)
        return
    following = command("report", run) if out or not result.blocks else command("flame", run, "-o", "lost.svg")
    show(replace(result, next_command=following), as_json)
