"""`lostflops explain`: one finding of the diagnosis in detail."""

from dataclasses import replace
from typing import Annotated

import typer

from lostflops.cli.assumptions import CalibrationOption, PriceOption, TopologyOption
from lostflops.cli.completion import complete_finding
from lostflops.cli.output import JsonOption, MarkdownOption, RunArgument, command, name_run, show
from lostflops.cli.scope import rank_bar

EXAMPLE = "lostflops explain run 1"


def explain(
    run: RunArgument,
    number: Annotated[
        int,
        typer.Argument(
            metavar="N",
            min=1,
            help="Number of the finding in lostflops diagnose.",
            autocompletion=complete_finding,
        ),
    ] = 1,
    *,
    usd_per_hour: PriceOption = None,
    calibration: CalibrationOption = None,
    topology: TopologyOption = None,
    as_markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> None:
    """Explain one finding: evidence, fix, expected gain.

    Findings have the same numbers as in lostflops diagnose. The last line is the command that compares the prediction
    with a run of the fixed program.
    """
    from lostflops.cli.scope import open_run

    with open_run(run) as opened, rank_bar() as progress:
        result = opened.explain(
            number, usd_per_hour=usd_per_hour, calibration=calibration, topology=topology, progress=progress
        )
    kept = result.to_json()["findings"][0]["prediction"]
    following = command("score", kept["id"], "--with", "NEW_RUN") if kept else command("diff", run, "NEW_RUN")
    show(replace(result, next_command=following, run=name_run(run)), as_json, as_markdown=as_markdown)
