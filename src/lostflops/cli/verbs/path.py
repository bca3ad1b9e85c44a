"""`lostflops path`: what the step time depends on."""

from dataclasses import replace
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, name_run, show
from lostflops.cli.scope import rank_bar

EXAMPLE = "lostflops path run --step 3"


def path(
    run: RunArgument,
    *,
    step: Annotated[int | None, typer.Option("--step", metavar="K", help="Only this step.", show_default=False)] = None,
    top: Annotated[
        int, typer.Option("--top", min=1, metavar="N", help="Number of tasks and of path segments to show.")
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show the critical path of a step.

    Replays the run as a graph of tasks over all ranks, and follows each step back from its end: from each task to the
    one it had to wait for. Everything off that path has slack.
    """
    from lostflops.cli.scope import open_run

    with open_run(run) as opened, rank_bar() as progress:
        result = opened.path(step=step, top=top, progress=progress)
    show(replace(result, next_command=command("whatif", run, "--all"), run=name_run(run)), as_json)
