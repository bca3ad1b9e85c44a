"""`lostflops path`: what the step time hangs on."""

from dataclasses import replace
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import rank_bar

EXAMPLE = "lostflops path run --step 3"


def path(
    run: RunArgument,
    *,
    step: Annotated[int | None, typer.Option("--step", metavar="K", help="Only this step.", show_default=False)] = None,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Tasks and stretches to show.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show the critical path of a step.

    The run is replayed as a graph of tasks over all ranks, and each step's end is walked back over what let each task
    start. What is not on that path has slack.
    """
    from lostflops.graph.critical import critical
    from lostflops.store.run import Run

    with Run.open(run) as opened, rank_bar() as progress:
        result = critical(opened, step=step, top=top, progress=progress)
    show(replace(result, next_command=command("whatif", run, "--all")), as_json)
