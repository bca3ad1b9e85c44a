"""`lostflops comm`: what was communicated, and how much of it compute hid."""

from dataclasses import replace
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, name_run, show
from lostflops.cli.scope import RankOption, StepOption, WindowOption, rank_bar

EXAMPLE = "lostflops comm run --step 10"


def comm(
    run: RunArgument,
    *,
    window: WindowOption = None,
    rank: RankOption = None,
    step: StepOption = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="Collectives, units or layers to list.")
    ] = 20,
    overlapping: Annotated[
        bool, typer.Option("--overlap", help="Show how compute, communication and copies overlap.")
    ] = False,
    layers: Annotated[
        bool, typer.Option("--layers", help="Show each FSDP unit and layer beside the compute that could hide it.")
    ] = False,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="NAME",
            help="Cluster, to compare what NCCL chose with its model: a file, or a name such as dgx-h100.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show communication: calls, sizes, bandwidth.

    By process group: time, and how much of it compute hid. By operation, group, dtype and size: number of calls, time
    waiting for late ranks, transfer time, and bandwidth of the transfer. If a log of NCCL was ingested: transports,
    slow connections, and what NCCL chose.
    """
    from lostflops.cli.scope import open_run

    with open_run(run) as opened, rank_bar() as progress:
        result = opened.comm(
            window=window,
            rank=rank or (),
            step=step or (),
            limit=limit,
            overlap=overlapping,
            layers=layers,
            topology=topology,
            progress=progress,
        )
    show(
        replace(result, next_command=command("comm" if overlapping or layers else "ranks", run), run=name_run(run)),
        as_json,
    )


def overlap(
    run: RunArgument,
    *,
    window: WindowOption = None,
    rank: RankOption = None,
    step: StepOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which work overlaps and which does not.

    For compute, each communication operation and copies: total time, time alone, and time hidden by compute. Also
    splits the busy time by what ran at the same moment.
    """
    comm(run, window=window, rank=rank, step=step, overlapping=True, as_json=as_json)
