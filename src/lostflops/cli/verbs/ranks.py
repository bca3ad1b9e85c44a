"""`lostflops ranks`: which ranks are late, why, and what it costs."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, name_run, show
from lostflops.cli.scope import MeshOption, StepOption, WindowOption, rank_bar

if TYPE_CHECKING:
    from lostflops.core.results import Result

EXAMPLE = "lostflops ranks run --mesh tp=8,dp=16"


def ranks(
    run: RunArgument,
    *,
    window: WindowOption = None,
    step: StepOption = None,
    mesh: MeshOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Ranks to list.")] = 12,
    by_step: Annotated[
        bool, typer.Option("--by-step", help="Show when each rank is late: maps by step and phase.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show which ranks are late, and why.

    Shows stragglers with the ledger line that makes them late, how long others waited for them, and how likely that is
    by chance; a map of arrivals in mesh order; and each rank compared with ranks that do the same work.
    """
    from lostflops.cli.scope import open_run

    with open_run(run) as opened, rank_bar() as progress:
        result = opened.ranks(
            window=window, step=step or (), mesh=mesh, limit=limit, by_step=by_step, progress=progress
        )
    following = command("ranks", run) if by_step else _next(result, run)
    show(replace(result, next_command=following, run=name_run(run)), as_json)


def _next(result: "Result", run: Path) -> str:
    found = result.to_json()
    if late := found["stragglers"]:
        return command("report", run, "--rank", str(late[0]["rank"]))
    if not found["ranks"] and "enqueues" in found:
        return command("steps", run)
    return command("pipeline" if "pp" in found["mesh"] else "comm", run)


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
