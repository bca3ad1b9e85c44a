"""`lostflops steps`: how long each step took, and where its time went."""

from dataclasses import replace

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import RankOption, StepOption, rank_bar

EXAMPLE = "lostflops steps run --rank 0"


def steps(run: RunArgument, rank: RankOption = None, step: StepOption = None, as_json: JsonOption = False) -> None:
    """Show how long each training step took.

    The mean of the ranks, the slowest rank, and the share of compute, communication, copies and idle time; steps
    that take longer than the others are marked. Of what lostflops run recorded, all steps with their phases. JSON holds
    the ledger of every rank and step.
    """
    from lostflops.analyze.steps import steps as analyse
    from lostflops.store.run import Run

    with Run.open(run) as opened, rank_bar() as progress:
        result = analyse(opened, ranks=rank or (), steps=step or (), progress=progress)
    listed = result.to_json()["steps"]
    longest = max(listed, key=lambda row: row["wall_ns"])["step"] if listed else None
    following = command("report", run, *(("--step", str(longest)) if longest is not None else ()))
    show(replace(result, next_command=following), as_json)
