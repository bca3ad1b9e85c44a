"""`lostflops flame`: in which functions the host loses time."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import RankOption, StepOption, WindowOption, rank_bar, window_kind

EXAMPLE = "lostflops flame run -o lost.svg --line idle.python"


def flame(
    run: RunArgument,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the graph here.", show_default=False)
    ] = None,
    line: Annotated[
        list[str] | None,
        typer.Option(
            "--line",
            metavar="LINE",
            help="Only this line of the ledger; may be given more than once.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All lines, lost or not.")] = False,
    collapsed: Annotated[bool, typer.Option("--collapsed", help="Folded stacks as text, not SVG.")] = False,
    window: WindowOption = None,
    rank: RankOption = None,
    step: StepOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which functions the host loses time in.

    Each sample stands on the line of the ledger that its instant stands on; those on lines that the host is
    responsible for are shown, and drawn as a flame graph (SVG) with -o. With --collapsed and no file, the
    folded stacks go to the screen.
    """
    from lostflops.analyze.flame import flame as analyse
    from lostflops.errors import UsageError
    from lostflops.ledger.lines import HOST_LINES, LINES
    from lostflops.report import folded, svg
    from lostflops.store.run import Run

    if everything and line:
        raise UsageError("--all is all lines: leave out --line, or --all")
    if collapsed and as_json:
        raise UsageError("JSON holds the stacks too: leave out --collapsed, or --json")
    with Run.open(run) as opened, rank_bar() as progress:
        result = analyse(
            opened,
            window=window_kind(window),
            ranks=rank or (),
            steps=step or (),
            lines=LINES if everything else line or HOST_LINES,
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
