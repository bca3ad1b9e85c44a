"""The best size of buckets: `lostflops whatif --tune bucket_mb`, and its old name `lostflops tune bucket`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.network import CalibrationOption, TopologyOption, described, times_of
from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import bar_of

EXAMPLE = "lostflops tune bucket run --sizes 5,25,100"


SIZES = "1,2,5,10,25,50,100,200"


class Setting(StrEnum):
    BUCKET = "bucket"


def tune(
    setting: Annotated[Setting, typer.Argument(metavar="SETTING", help="What to tune: bucket.", show_default=False)],
    run: RunArgument,
    *,
    sizes: Annotated[str, typer.Option("--sizes", metavar="MB,MB,...", help="Sizes to try, in MiB.")] = SIZES,
    calibration: CalibrationOption = None,
    topology: TopologyOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw it here, as SVG.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the size of gradient buckets that makes steps shortest.

    The run is replayed as a graph of tasks with each size: fewer and larger reductions start later, more and smaller
    ones pay more latency. Sizes that runs could not tell from the best count as good as it.
    """
    from lostflops.predict.answers.baseline import baseline
    from lostflops.predict.answers.tune import tune_bucket
    from lostflops.report import svg
    from lostflops.store.run import Run

    assert setting is Setting.BUCKET
    cluster = described(calibration, topology)
    times = times_of(calibration, cluster) if calibration or cluster else None
    with Run.open(run) as opened, bar_of("ranks") as progress:
        start = baseline(opened, times, progress=progress)
    with bar_of("sizes") as progress:
        result = tune_bucket(start, [size.strip() for size in sizes.split(",")], progress=progress)
    if plot is not None:
        with plot.open("w", encoding="utf-8") as stream:
            svg.write(result, stream)
    best = result.to_json()["best"]["bucket_mb"]
    show(replace(result, next_command=command("whatif", run, "--change", f"bucket_mb={best:g}")), as_json)
