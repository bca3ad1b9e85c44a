"""`lostflops pipeline`: how long the pipeline is idle, and why."""

from dataclasses import replace

from lostflops.cli.output import JsonOption, RunArgument, command, name_run, show
from lostflops.cli.scope import MeshOption

EXAMPLE = "lostflops pipeline run --mesh tp=2,dp=2,pp=4"


def pipeline(run: RunArgument, *, mesh: MeshOption = None, as_json: JsonOption = False) -> None:
    """Show the bubble of pipeline-parallel training.

    Shows how long stages work on no microbatch, how much of that is inherent to the schedule, and what causes the
    rest: uneven stages, uneven ranks, uneven microbatches, transfers and gaps.
    """
    from lostflops.cli.scope import open_run

    with open_run(run) as opened:
        result = opened.pipeline(mesh=mesh)
    show(replace(result, next_command=command("ranks", run), run=name_run(run)), as_json)
