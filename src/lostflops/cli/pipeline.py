"""`lostflops pipeline`: how much the pipeline idles, and why."""

from dataclasses import replace

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import MeshOption

EXAMPLE = "lostflops pipeline run --mesh tp=2,dp=2,pp=4"


def pipeline(run: RunArgument, *, mesh: MeshOption = None, as_json: JsonOption = False) -> None:
    """Show the bubble of pipeline-parallel training.

    How much of their time stages are in no pass of a microbatch, what of that is inherent to the schedule, and what
    the rest is charged to: uneven stages, uneven ranks, uneven microbatches, transfers and gaps.
    """
    from lostflops.advise.summary import pipeline_with_findings
    from lostflops.align.mesh import parse
    from lostflops.analyze.pipeline import pipeline as analyse
    from lostflops.store.run import Run

    sizes = None if mesh is None else parse(mesh)
    with Run.open(run) as opened:
        result = analyse(opened, mesh=sizes)
        if sizes is None and result.blocks:
            result = pipeline_with_findings(result, opened)
    show(replace(result, next_command=command("ranks", run)), as_json)
