"""`lostflops doctor`: what can be measured here, and what not."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import OWN_JOB, JsonOption, command, show

EXAMPLE = "lostflops doctor run --python /opt/env/bin/python"
INCONCLUSIVE = 3


def doctor(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN", help="Folder of a run, recorded or to come.  [default: here]", show_default=False
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PATH", help="The job's Python.  [default: this one]", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check what can be measured on this machine.

    Of a run that is recorded, also what its collector could not measure. The exit code is 3 when something is missing
    without which nothing can be recorded.
    """
    from dataclasses import replace

    from lostflops.capture import FOLDER
    from lostflops.doctor.capture_checks import capture_checks
    from lostflops.doctor.host_checks import host_checks
    from lostflops.doctor.probes import look
    from lostflops.doctor.result import is_usable, result
    from lostflops.doctor.torch_checks import torch_checks

    machine = look(run or Path(), python or sys.executable, os.environ)
    checks = [*torch_checks(machine), *host_checks(machine)]
    if run is not None and (run / FOLDER).is_dir():
        checks += capture_checks(run / FOLDER)
    following = command("watch", run) if run is not None else command("demo")
    usable = is_usable(checks)
    own = OWN_JOB if usable and run is None else ""
    show(replace(result(checks), next_command=following, other_command=own), as_json)
    if not usable:
        raise typer.Exit(INCONCLUSIVE)
