"""`lostflops diagnose`: why a run is slow, and what to do about it."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.assumptions import CalibrationOption, PriceOption, TopologyOption
from lostflops.cli.output import JsonOption, MarkdownOption, RunArgument, command, name_run, show
from lostflops.cli.scope import rank_bar

if TYPE_CHECKING:
    from lostflops.core.results import Result

EXAMPLE = "lostflops diagnose run --usd-per-hour 2.5"


def diagnose(
    run: RunArgument,
    *,
    usd_per_hour: PriceOption = None,
    top: Annotated[int, typer.Option("--top", min=1, metavar="N", help="Findings to show; JSON has all.")] = 5,
    calibration: CalibrationOption = None,
    topology: TopologyOption = None,
    as_markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find what slows training, and what each fix saves.

    A rule checks each cause, and a replay of the run predicts what its fix saves. Findings are ranked by that saving.
    The predictions are saved in the run, and lostflops score compares them with a run of the fixed job.
    """
    from lostflops.cli.scope import open_run

    with open_run(run) as opened, rank_bar() as progress:
        result = opened.diagnose(
            usd_per_hour=usd_per_hour,
            top=top,
            calibration=calibration,
            topology=topology,
            keep=True,
            progress=progress,
        )
    # Findings are numbered by gains, which these options change.
    same: list[str | Path] = [
        word
        for option, value in (("--calibration", calibration), ("--topology", topology))
        if value
        for word in (option, value)
    ]
    show(_with_next(replace(result, run=name_run(run)), run, same), as_json, as_markdown=as_markdown)


def _with_next(result: "Result", run: Path, same: list[str | Path]) -> "Result":
    """Add the what-if of the first finding that has a change; otherwise its explanation."""
    findings = result.to_json()["findings"]
    if not findings:
        return replace(result, next_command=command("whatif", run, "--all", *same))
    explained = command("explain", run, "1", *same)
    predictions = [found["prediction"] for found in findings if found["prediction"] is not None]
    if not predictions:
        return replace(result, next_command=explained)
    changes = [word for change in predictions[0]["change"].split(", ") for word in ("--change", change)]
    return replace(result, next_command=command("whatif", run, *changes, *same), other_command=explained)
