"""The best bucket size: `lostflops whatif --tune bucket_mb`, and its old name `lostflops tune bucket`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.network import CalibrationOption, TopologyOption
from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import bar_of

EXAMPLE = "lostflops tune bucket run --sizes 5,25,100"


SIZES = "1,2,5,10,25,50,100,200"


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
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Write a plot to this SVG file.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the gradient bucket size for the fastest step.

    Replays the run as a graph of tasks with each size: fewer, larger reductions start later; more, smaller ones pay
    more latency. Sizes whose difference from the best is too small to measure count as equally good.
    """
    from lostflops.api import open as open_run
    from lostflops.show.report import svg

    assert setting is TunedSetting.BUCKET
    tried = [size.strip() for size in sizes.split(",")]
    with open_run(run) as opened, bar_of("sizes") as progress:
        result = opened.tune(tried, calibration=calibration, topology=topology, progress=progress)
    if plot is not None:
        with plot.open("w", encoding="utf-8") as stream:
            svg.write(result, stream)
    best = result.to_json()["best"]["bucket_mb"]
    show(replace(result, next_command=command("whatif", run, "--change", f"bucket_mb={best:g}")), as_json)
