"""`lostflops kernels`: which kernels take the time."""

from dataclasses import replace
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import RankOption, StepOption, WindowOption, rank_bar, window_kind

EXAMPLE = "lostflops kernels run --rank 0 --limit 50"


def kernels(
    run: RunArgument,
    *,
    window: WindowOption = None,
    rank: RankOption = None,
    step: StepOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Kernels to list.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show which kernels take the device's time.

    By class and by name: how often, how long, the time lost waiting for their launch, occupancy where it is
    recorded, and how much of the matmul time runs on tensor cores.
    """
    from lostflops.analyze.kernels import kernels as analyse
    from lostflops.store.run import Run

    with Run.open(run) as opened, rank_bar() as progress:
        result = analyse(
            opened, window=window_kind(window), ranks=rank or (), steps=step or (), limit=limit, progress=progress
        )
    show(replace(result, next_command=command("comm", run)), as_json)
