"""Options of verbs that predict collectives on another cluster: a calibration, or a topology."""

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
