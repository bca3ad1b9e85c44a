"""`lostflops collectives`: the time of collectives on a group of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import JsonOption, command, show
from lostflops.cli.plots import PlotOption, check_plot, save_plot

if TYPE_CHECKING:
    from lostflops.predict.costs.times import CommGroup, Op

EXAMPLE = "lostflops collectives --ranks 64 --topology dgx-h100 --op all_reduce"


def collectives(
    *,
    ranks: Annotated[int, typer.Option("--ranks", min=2, metavar="N", help="Ranks in the group.", show_default=False)],
    ranks_per_host: Annotated[
        int | None,
        typer.Option(
            "--ranks-per-host",
            min=1,
            metavar="N",
            help="Ranks of the group per host.  [default: from the calibration or topology]",
            show_default=False,
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE", help="File from lostflops calibrate.", show_default=False),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology", metavar="FILE", help="Cluster: a file, or a name such as dgx-h100.", show_default=False
        ),
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option("--op", metavar="OP", help="Only this operation; can be repeated.", show_default=False),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="SIZE", help="Message size, e.g. 25MB; can be repeated.", show_default=False),
    ] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate how long collectives take.

    Uses a calibration, extrapolated if it does not cover the group; otherwise NCCL's published cost model for the
    topology. Each estimate has an interval and names its source.
    """
    from dataclasses import replace

    from lostflops.core.errors import UsageError
    from lostflops.core.units import parse_bytes
    from lostflops.predict.costs.calibrated.collectives import SIZES
    from lostflops.predict.costs.calibrated.collectives import collectives as predict
    from lostflops.predict.costs.calibration import read_calibration
    from lostflops.predict.costs.collective_times import CollectiveTimes
    from lostflops.predict.costs.topology import read_topology

    if calibration is None and topology is None:
        raise UsageError("the cost of collectives is unknown: give --calibration FILE or --topology NAME")
    check_plot(plot)
    measured = None if calibration is None else read_calibration(calibration)
    described = None if topology is None else read_topology(topology)
    hosts = [len(host.ranks) for host in measured.hosts] if measured else []
    usual = ranks_per_host or (max(hosts, default=0) or (described.gpus_per_host if described else ranks))
    times = CollectiveTimes.of(calibration=measured, topology=described)
    sizes = sorted({parse_bytes(text) for text in size}) if size else SIZES
    result = predict(times, _group(ranks, usual), _ops(op), sizes)
    save_plot(result, plot)
    following = command("scale", "RUN", "--ranks", str(ranks), *_repeat_options(calibration, topology))
    show(replace(result, next_command=following), as_json)


def _group(ranks: int, per_host: int) -> CommGroup:
    from lostflops.predict.costs.times import CommGroup

    return CommGroup(ranks, -(-ranks // per_host))


def _ops(names: list[str] | None) -> tuple[Op, ...]:
    from lostflops.core.errors import UsageError
    from lostflops.predict.costs.times import OPS

    if unknown := [name for name in names or () if name not in OPS]:
        raise UsageError(f"--op {unknown[0]} is unknown; operations are {', '.join(OPS)}")
    return tuple(op for op in OPS if not names or op in names)


def _repeat_options(calibration: Path | None, topology: str | None) -> tuple[str | Path, ...]:
    if calibration is not None:
        return "--calibration", calibration
    return ("--topology", topology) if topology is not None else ()
