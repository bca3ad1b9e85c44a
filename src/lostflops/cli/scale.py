"""`lostflops scale`: what a run would take with other numbers of ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.network import CalibrationOption, TopologyOption, described, times_of
from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import MeshOption, rank_bar

EXAMPLE = "lostflops scale run --ranks 64,512,4096 --topology dgx-h100"


def scale(
    run: RunArgument,
    *,
    ranks: Annotated[
        str, typer.Option("--ranks", metavar="N,N,...", help="Numbers of ranks to tell.", show_default=False)
    ],
    calibration: CalibrationOption = None,
    topology: TopologyOption = None,
    strong: Annotated[bool, typer.Option("--strong", help="Keep the work of the job, not of a rank.")] = False,
    ranks_per_host: Annotated[
        int | None,
        typer.Option(
            "--ranks-per-host",
            min=1,
            metavar="N",
            help="Ranks of a host.  [default: the topology's, or as in the run]",
            show_default=False,
        ),
    ] = None,
    mesh: MeshOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw it here, as SVG.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict step time at other numbers of ranks.

    The recorded steps are replayed with the transfers that larger data-parallel groups would have: as a calibration or
    a topology tells them, else as the run's own collectives do. Without --strong each rank keeps its work.
    """
    from lostflops.align.mesh import parse
    from lostflops.predict.scaling.scale import scale as predict
    from lostflops.report import svg
    from lostflops.store.run import Run

    cluster = described(calibration, topology)
    with Run.open(run) as opened, rank_bar() as progress:
        result = predict(
            opened,
            numbers(ranks),
            times_of(calibration, cluster),
            strong=strong,
            mesh=None if mesh is None else parse(mesh),
            ranks_per_host=ranks_per_host or (cluster.gpus_per_host if cluster else None),
            progress=progress,
        )
    if plot is not None:
        with plot.open("w", encoding="utf-8") as stream:
            svg.write(result, stream)
    show(replace(result, next_command=command("comm", run)), as_json)


def numbers(text: str) -> list[int]:
    """
    >>> numbers("8, 64,512")
    [8, 64, 512]
    """
    from lostflops.errors import UsageError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 10**7 for part in parts):
        raise UsageError(f"--ranks {text!r} is no list of numbers of ranks, such as 8,64,512")
    return [int(part) for part in parts]
