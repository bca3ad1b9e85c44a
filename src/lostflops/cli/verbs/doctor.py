"""`lostflops doctor`: what can be measured here, and what cannot."""

import os
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import OWN_JOB, JsonOption, command, show

EXAMPLE = "lostflops doctor run --python /opt/env/bin/python"
INCONCLUSIVE = 3
UNHEALTHY = 1


def doctor(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="Folder of a run, recorded or planned.  [default: current folder]",
            show_default=False,
        ),
    ] = None,
    *,
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="PATH", help="Python that runs the job.  [default: this one]", show_default=False
        ),
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Check all ranks before a job: start this command on each, with torchrun.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=5,
            max=3600,
            metavar="N",
            help="Time limit of --cluster in seconds.  [default: 60]",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="NAME",
            help="Device for --cluster: cpu, or the accelerator that torch finds (default).",
            show_default=False,
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="NAME",
            help="For --cluster, compare collectives with NCCL's model: a file, or a name such as dgx-h100.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check what can be measured on this machine.

    For a recorded run, also shows what its collector could not measure. The exit code is 3 if something required for
    recording is missing. With --cluster, measures every rank, its links and its versions, and names those at fault: the
    exit code is 1 if a check fails. RUN is then the folder that the job writes to.
    """
    from dataclasses import replace

    from lostflops.api import doctor as examine

    if cluster:
        result = examine(run, python=python, cluster=True, seconds=seconds, device=device, topology=topology)
        if os.environ.get("RANK", os.environ.get("SLURM_PROCID", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))) == "0":
            show(result, as_json)
        if not result.is_healthy:
            raise typer.Exit(UNHEALTHY)
        return

    result = examine(run, python=python, seconds=seconds, device=device, topology=topology)
    following = command("watch", run) if run is not None else command("demo")
    usable = result.is_usable
    own = OWN_JOB if usable and run is None else ""
    show(replace(result, next_command=following, other_command=own), as_json)
    if not usable:
        raise typer.Exit(INCONCLUSIVE)
