"""`lostflops comm`: what was communicated, and what compute hid of it."""

from dataclasses import replace
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.overlap import overlap
from lostflops.cli.scope import RankOption, StepOption, WindowOption, rank_bar, window_kind

EXAMPLE = "lostflops comm run --step 10"


def comm(
    run: RunArgument,
    *,
    window: WindowOption = None,
    rank: RankOption = None,
    step: StepOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Collectives to list.")] = 20,
    overlapping: Annotated[
        bool, typer.Option("--overlap", help="Show which work overlaps with which, communication and compute.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the communication: calls, sizes, bandwidth.

    By process group: time, and what of it compute hid. By operation, group, dtype and size: how often, how long calls
    waited for late ranks, how long data moved, and the bandwidth of that.
    """
    if overlapping:
        return overlap(run, window=window, rank=rank, step=step, as_json=as_json)
    from lostflops.analyze.comm import comm as analyse
    from lostflops.store.run import Run

    with Run.open(run) as opened, rank_bar() as progress:
        result = analyse(
            opened, window=window_kind(window), ranks=rank or (), steps=step or (), limit=limit, progress=progress
        )
    return show(replace(result, next_command=command("ranks", run)), as_json)
