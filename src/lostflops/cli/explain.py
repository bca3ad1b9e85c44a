"""`lostflops explain`: one finding of the diagnosis in full."""

from dataclasses import replace
from typing import Annotated

import typer

from lostflops.cli.diagnose import PriceOption
from lostflops.cli.network import CalibrationOption, TopologyOption, described, times_of
from lostflops.cli.output import JsonOption, MarkdownOption, RunArgument, command, show
from lostflops.cli.scope import rank_bar

EXAMPLE = "lostflops explain run 1"


def explain(
    run: RunArgument,
    number: Annotated[int, typer.Argument(metavar="N", min=1, help="Which finding of lostflops diagnose.")] = 1,
    *,
    usd_per_hour: PriceOption = None,
    calibration: CalibrationOption = None,
    topology: TopologyOption = None,
    as_markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> None:
    """Explain one finding: evidence, fix, what it moves.

    Findings are numbered as lostflops diagnose lists them. Next comes the command that scores the prediction with a
    run of the fixed program.
    """
    from lostflops.advise.explain import explain as tell
    from lostflops.store.run import Run

    cluster = described(calibration, topology)
    times = times_of(calibration, cluster) if calibration or cluster else None
    with Run.open(run) as opened, rank_bar() as progress:
        result = tell(opened, number, times, usd_per_hour=usd_per_hour, progress=progress)
    kept = result.to_json()["findings"][0]["prediction"]["id"]
    following = command("score", kept, "--with", "NEW_RUN") if kept else command("diff", run, "NEW_RUN")
    show(replace(result, next_command=following), as_json, as_markdown=as_markdown)
