"""Options of verbs that predict: what to assume about the network and the price."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CalibrationOption = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="FILE", help="File from lostflops calibrate.", show_default=False),
]
TopologyOption = Annotated[
    str | None,
    typer.Option("--topology", metavar="FILE", help="Cluster: a file, or a name such as dgx-h100.", show_default=False),
]
PriceOption = Annotated[
    float | None,
    typer.Option("--usd-per-hour", min=0, metavar="USD", help="Price of one rank per hour.", show_default=False),
]
