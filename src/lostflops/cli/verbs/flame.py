"""`lostflops flame`: in which functions the host loses time."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, name_run, show
from lostflops.cli.plots import check_plot
from lostflops.cli.scope import RankOption, StepOption, WindowOption, rank_bar

if TYPE_CHECKING:
    from lostflops.core.results import Result

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
    from lostflops.cli.scope import open_run
    from lostflops.core.errors import UsageError
    from lostflops.show.report import svg

    if everything and line:
        raise UsageError("--all and --line cannot be combined: give only one")
    if collapsed and as_json:
        raise UsageError("JSON contains the stacks too: leave out --collapsed or --json")
    if not collapsed:
        check_plot(out, "--out without --collapsed")
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
            (_write_folded if collapsed else svg.write)(result, stream)
    if collapsed and out is None:
        _write_folded(result, sys.stdout)
        return
    following = command("report", run) if out or not result.blocks else command("flame", run, "-o", "lost.svg")
    show(replace(result, next_command=following, run=name_run(run)), as_json)


def _write_folded(result: "Result", stream: TextIO) -> None:
    """Write stacks as text, one line each with its time in ns: the input of other flame graph tools."""
    from lostflops.core.results import Stacks

    for block in (*result.blocks, *result.more):
        if isinstance(block, Stacks):
            stream.writelines(f"{_fold_frames(frames)} {ns}\n" for frames, _, ns in block.items)


def _fold_frames(frames: tuple[str, ...]) -> str:
    """Join the frames of a stack into one line.

    >>> _fold_frames(("main train.py:3", "load\\tdata.py:12"))
    'main train.py:3;load data.py:12'
    """
    return ";".join(" ".join(frame.split()) for frame in frames)
