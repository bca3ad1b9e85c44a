"""`lostflops steps`: how long each step took, and where its time went."""

from dataclasses import replace

from lostflops.cli.output import JsonOption, RunArgument, command, name_run, show
from lostflops.cli.scope import RankOption, StepOption, rank_bar

EXAMPLE = "lostflops steps run --rank 0"


def steps(run: RunArgument, rank: RankOption = None, step: StepOption = None, as_json: JsonOption = False) -> None:
    """Show how long each training step took.

    Shows the mean over ranks, the slowest rank, and the share of compute, communication, copies and idle time. Steps
    that are longer than the others are marked. For runs recorded by lostflops run, shows all steps with their phases.
    JSON contains the ledger of every rank and step.
    """
    from lostflops.cli.scope import open_run

    with open_run(run) as opened, rank_bar() as progress:
        result = opened.steps(rank=rank or (), step=step or (), progress=progress)
    listed = result.to_json()["steps"]
    longest = max(listed, key=lambda row: row["wall_ns"])["step"] if listed else None
    following = command("report", run, *(("--step", str(longest)) if longest is not None else ()))
    show(replace(result, next_command=following, run=name_run(run)), as_json)
