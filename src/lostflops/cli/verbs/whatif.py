"""`lostflops whatif`: predict the step time with something changed."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lostflops.cli.assumptions import CalibrationOption, TopologyOption
from lostflops.cli.completion import complete_change
from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.plots import PlotOption, check_plot, save_plot
from lostflops.cli.scope import bar_of

EXAMPLE = "lostflops whatif run --change bucket_mb=50 --change network.bandwidth=2x"
SIZES = "1,2,5,10,25,50,100,200"


def whatif(
    run: RunArgument,
    *,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            metavar="NAME=VALUE",
            help="What to change; can be repeated.",
            show_default=False,
            autocompletion=complete_change,
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show all changes, and which apply to this run.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Try each change by itself, and rank them by gain.")
    ] = False,
    tuned: Annotated[
        str | None,
        typer.Option(
            "--tune",
            metavar="NAME[=A,B,...]",
            help="Find the best value of a setting: bucket_mb, or bucket_mb=5,25,100.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the curve of --tune, as SVG.", show_default=False),
    ] = None,
    calibration: CalibrationOption = None,
    topology: TopologyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict the step time with something changed.

    Replays the run as a graph of tasks, as recorded and with the changes applied in the given order. A prediction with
    --change is saved in the run under an id, and lostflops score compares it with a later run. --all saves nothing.
    """
    from lostflops.cli.scope import open_run
    from lostflops.core.errors import UsageError

    if bool(change) + listed + everything + (tuned is not None) != 1:
        raise UsageError("give exactly one of --change NAME=VALUE, --list, --all and --tune bucket_mb")
    if tuned is not None:
        name, _, sizes = tuned.partition("=")
        if name not in ("bucket_mb", "bucket"):
            raise UsageError(f"--tune {tuned}: only bucket_mb can be tuned; --all tries one value of every change")
        return tune(
            TunedSetting.BUCKET,
            run,
            sizes=sizes or SIZES,
            calibration=calibration,
            topology=topology,
            plot=plot,
            as_json=as_json,
        )
    if plot is not None:
        raise UsageError("--plot draws the curve of --tune: give both")
    cluster: dict[str, Any] = {"calibration": calibration, "topology": topology}
    with open_run(run) as opened, bar_of("ranks") as progress:
        if change:
            result = opened.whatif(*change, **cluster, progress=progress)
        elif listed:
            result = opened.changes(**cluster, progress=progress)
        else:
            result = opened.whatif(**cluster, progress=progress)
    if change:
        kept = result.to_json()["prediction_id"]
        following = command("score", kept, "--with", "NEW_RUN") if kept else command("whatif", run, "--list")
        result = replace(result, other_command=command("open", run))
    elif listed:
        following = command("whatif", run, "--all")
    else:
        following = command("whatif", run, "--change", result.best or "NAME=VALUE")
    return show(replace(result, next_command=following), as_json)


class TunedSetting(StrEnum):
    BUCKET = "bucket"


def tune(
    setting: Annotated[
        TunedSetting, typer.Argument(metavar="SETTING", help="What to tune: bucket.", show_default=False)
    ],
    run: RunArgument,
    *,
    sizes: Annotated[str, typer.Option("--sizes", metavar="MB,MB,...", help="Sizes to try, in MiB.")] = SIZES,
    calibration: CalibrationOption = None,
    topology: TopologyOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the gradient bucket size for the fastest step.

    Replays the run as a graph of tasks with each size: fewer, larger reductions start later; more, smaller ones pay
    more latency. Sizes whose difference from the best is too small to measure count as equally good.
    """
    from lostflops.cli.scope import open_run

    assert setting is TunedSetting.BUCKET
    check_plot(plot)
    tried = [size.strip() for size in sizes.split(",")]
    with open_run(run) as opened, bar_of("sizes") as progress:
        result = opened.tune(tried, calibration=calibration, topology=topology, progress=progress)
    save_plot(result, plot)
    best = result.to_json()["best"]["bucket_mb"]
    show(replace(result, next_command=command("whatif", run, "--change", f"bucket_mb={best:g}")), as_json)
