"""In which steps and phases each rank is late: `lostflops ranks --by-step`, and its old name `lostflops lateness`."""

from dataclasses import replace

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import MeshOption, StepOption, WindowOption, rank_bar, window_kind

EXAMPLE = "lostflops lateness run --mesh tp=8,dp=16"


def lateness(
    run: RunArgument,
    *,
    window: WindowOption = None,
    step: StepOption = None,
    mesh: MeshOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show in which steps and phases each rank is late.

    Maps of ranks in the order of the mesh: when each arrives in the collectives of a step, and what time of its own
    it takes beyond ranks that do the same work, by step and by phase.
    """
    from lostflops.align.mesh import parse
    from lostflops.analyze.lateness import lateness as analyse
    from lostflops.store.run import Run

    sizes = None if mesh is None else parse(mesh)
    with Run.open(run) as opened, rank_bar() as progress:
        result = analyse(opened, window=window_kind(window), steps=step or (), mesh=sizes, progress=progress)
    show(replace(result, next_command=command("ranks", run)), as_json)
