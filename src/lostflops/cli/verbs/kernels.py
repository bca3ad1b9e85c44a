"""`lostflops kernels`: which kernels take the time."""

from dataclasses import replace
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, name_run, show
from lostflops.cli.scope import RankOption, StepOption, WindowOption, rank_bar

EXAMPLE = "lostflops kernels run --rank 0 --limit 50"


def kernels(
    run: RunArgument,
    *,
    window: WindowOption = None,
    rank: RankOption = None,
    step: StepOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Kernels to list.")] = 20,
    full_names: Annotated[
        bool, typer.Option("--full-names", help="Show names of kernels in full, not cut to the column.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show which kernels take the device's time.

    By class and by name: number of calls, time, time lost waiting for their launch, occupancy if it was recorded for
    half of the time or more, and how much of the matmul time runs on tensor cores.
    """
    from lostflops.cli.scope import open_run

    with open_run(run) as opened, rank_bar() as progress:
        result = opened.kernels(
            window=window, rank=rank or (), step=step or (), limit=limit, full_names=full_names, progress=progress
        )
    show(replace(result, next_command=command("comm", run), run=name_run(run)), as_json)
