"""`lostflops scale`: the step time of a run with other numbers of ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.assumptions import CalibrationOption, TopologyOption
from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.plots import PlotOption, check_plot, save_plot
from lostflops.cli.scope import MeshOption, rank_bar

if TYPE_CHECKING:
    from lostflops.core.results import Result

EXAMPLE = "lostflops scale run --ranks 64,512,4096 --topology dgx-h100"


def scale(
    run: RunArgument,
    *,
    ranks: Annotated[
        str, typer.Option("--ranks", metavar="N,N,...", help="Numbers of ranks to predict.", show_default=False)
    ],
    calibration: CalibrationOption = None,
    topology: TopologyOption = None,
    strong: Annotated[
        bool, typer.Option("--strong", help="Keep the total work constant, not the work per rank.")
    ] = False,
    ranks_per_host: Annotated[
        int | None,
        typer.Option(
            "--ranks-per-host",
            min=1,
            metavar="N",
            help="Ranks per host.  [default: from the topology, or as in the run]",
            show_default=False,
        ),
    ] = None,
    mesh: MeshOption = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            metavar="N",
            help="Sequences per step at these numbers of ranks, for a description.  [default: in proportion to ranks]",
            show_default=False,
        ),
    ] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict step time at other numbers of ranks.

    Replays the recorded steps with the transfer times of larger data-parallel groups, from a calibration or topology,
    otherwise from the run's own collectives. Without --strong, the work per rank stays the same (weak scaling).

    RUN can also be a description of a job as for lostflops estimate, with its measured step_seconds: the estimate is
    then scaled to that step.
    """
    from lostflops.api import scale as scale_description
    from lostflops.cli.scope import open_run
    from lostflops.core.errors import UsageError

    check_plot(plot)
    result: Result
    is_description = run.is_file() and run.suffix in {".toml", ".json"}
    if is_description:
        if ranks_per_host is not None or mesh is not None:
            raise UsageError(f"{run} is a description, which has its own layout: leave out --ranks-per-host and --mesh")
        result = scale_description(
            run, numbers(ranks), calibration=calibration, topology=topology, strong=strong, batch=batch
        )
    elif batch is not None:
        raise UsageError("--batch is for a description of a job: leave it out, or give --strong")
    else:
        with open_run(run) as opened, rank_bar() as progress:
            result = opened.scale(
                numbers(ranks),
                calibration=calibration,
                topology=topology,
                strong=strong,
                ranks_per_host=ranks_per_host,
                mesh=mesh,
                progress=progress,
            )
    save_plot(result, plot)
    next_command = command("estimate", run) if is_description else command("comm", run)
    show(replace(result, next_command=next_command), as_json)


def numbers(text: str) -> list[int]:
    """Parse a list of numbers.

    >>> numbers("8, 64,512")
    [8, 64, 512]
    """
    from lostflops.core.errors import UsageError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 10**7 for part in parts):
        raise UsageError(f"--ranks {text!r} is not a list of numbers such as 8,64,512")
    return [int(part) for part in parts]
