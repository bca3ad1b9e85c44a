"""In which steps and phases each rank is late: `lostflops ranks --by-step`, and its old name `lostflops lateness`."""

from lostflops.cli.output import JsonOption, RunArgument
from lostflops.cli.ranks import ranks
from lostflops.cli.scope import MeshOption, StepOption, WindowOption

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

    Maps of ranks in mesh order: when each rank arrives at the collectives of a step, and how much extra time it needs
    compared with its peers (ranks that do the same work), by step and by phase.
    """
    ranks(run, window=window, step=step, mesh=mesh, by_step=True, as_json=as_json)
