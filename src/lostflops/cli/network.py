"""Options of verbs that ask what collectives take elsewhere: a calibration, or a described cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lostflops.predict.costs.times import Times
    from lostflops.predict.costs.topology import Topology
    from lostflops.predict.scaling.own_times import OwnTimes

CalibrationOption = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="FILE", help="What lostflops calibrate measured there.", show_default=False),
]
TopologyOption = Annotated[
    str | None,
    typer.Option("--topology", metavar="FILE", help="A described cluster, or its name.", show_default=False),
]


def described(calibration: Path | None, topology: str | None) -> Topology | None:
    from lostflops.errors import UsageError
    from lostflops.predict.costs.topology import read_topology

    if calibration is not None and topology is not None:
        raise UsageError("a calibration knows more than a topology: leave out --topology, or --calibration")
    return None if topology is None else read_topology(topology)


def times_of(calibration: Path | None, topology: Topology | None) -> Callable[[OwnTimes], Times]:
    """What to tell the times of collectives from, given what the run's own take."""
    from lostflops.errors import UnknownCost
    from lostflops.predict.costs.calibration import read_calibration
    from lostflops.predict.costs.collective_times import CollectiveTimes

    def times(own: OwnTimes) -> Times:
        if topology is not None:
            if own.backend == "gloo":
                raise UnknownCost("the run used gloo, and what is known of topologies is NCCL's: give --calibration")
            return CollectiveTimes.of(topology=topology)
        if calibration is not None:
            return CollectiveTimes.of(calibration=read_calibration(calibration), learned=own)
        return CollectiveTimes.of(learned=own)

    return times
