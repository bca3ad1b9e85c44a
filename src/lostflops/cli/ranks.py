"""`lostflops ranks`: who is late, why, and what it costs."""

from dataclasses import replace
from typing import Annotated

import typer

from lostflops.cli.lateness import lateness
from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import MeshOption, StepOption, WindowOption, rank_bar, window_kind

EXAMPLE = "lostflops ranks run --mesh tp=8,dp=16"


def ranks(
    run: RunArgument,
    *,
    window: WindowOption = None,
    step: StepOption = None,
    mesh: MeshOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Ranks to list.")] = 12,
    by_step: Annotated[
        bool, typer.Option("--by-step", help="Show when each rank is late: maps of steps and phases.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show which ranks are late, and why.

    Stragglers with the line of the ledger that makes them late, what others waited for them, and how likely it is
    chance; a map of arrivals in the order of the mesh; every rank beside those that do the same work.
    """
    if by_step:
        return lateness(run, window=window, step=step, mesh=mesh, as_json=as_json)
    from lostflops.advise.summary import ranks_with_findings
    from lostflops.align.mesh import parse
    from lostflops.analyze.ranks import ranks as analyse
    from lostflops.store.run import Run

    with Run.open(run) as opened, rank_bar() as progress:
        result = analyse(
            opened,
            window=window_kind(window),
            steps=step or (),
            mesh=None if mesh is None else parse(mesh),
            limit=limit,
            progress=progress,
        )
        if not (window or step or mesh):
            result = ranks_with_findings(result, opened)
    found = result.to_json()
    following = command("pipeline" if "pp" in found["mesh"] else "comm", run)
    if not found["ranks"] and "enqueues" in found:
        following = command("steps", run)
    if late := found["stragglers"]:
        following = command("report", run, "--rank", str(late[0]["rank"]))
    return show(replace(result, next_command=following), as_json)
