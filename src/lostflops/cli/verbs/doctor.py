"""`lostflops doctor`: what can be measured here, and what cannot."""

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
            metavar="RUN",
            help="Folder of a run, recorded or planned.  [default: current folder]",
            show_default=False,
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="PATH", help="Python that runs the job.  [default: this one]", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check what can be measured on this machine.

    For a recorded run, also shows what its collector could not measure. The exit code is 3 if something required for
    recording is missing.
    """
    from dataclasses import replace

    from lostflops.api import doctor as examine

    result = examine(run, python=python)
    following = command("watch", run) if run is not None else command("demo")
    usable = result.is_usable
    own = OWN_JOB if usable and run is None else ""
    show(replace(result, next_command=following, other_command=own), as_json)
    if not usable:
        raise typer.Exit(INCONCLUSIVE)
