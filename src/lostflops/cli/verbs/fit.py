"""`lostflops fit`: memory and throughput by batch size, from a few short runs of a command."""

import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import JsonOption, command, show, tell

if TYPE_CHECKING:
    from lostflops.predict.fit.batch_argument import BatchArgument
    from lostflops.predict.fit.batches import FitResult, MeasuredBatch
    from lostflops.predict.fit.room import Room

EXAMPLE = "lostflops fit --steps 40 --memory 24GiB -- python train.py --batch-size 32"
CONTEXT = {"allow_interspersed_args": False}
_FEWEST = 20
"""A run needs at least this many steps: the window comes after 8 and takes 3, and some before and after it are
timed."""


def fit(
    words: Annotated[list[str], typer.Argument(metavar="CMD", help="Command to run, after --.", show_default=False)],
    *,
    argument: Annotated[
        str | None,
        typer.Option(
            "--argument",
            metavar="NAME",
            help="Argument of CMD that sets the batch size.",
            show_default="found by its name",
        ),
    ] = None,
    variable: Annotated[
        str | None,
        typer.Option("--variable", metavar="NAME", help="Environment variable that sets it.", show_default=False),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option("--sizes", metavar="N,N,...", help="Batch sizes to run.", show_default="half, as given, double"),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps", min=_FEWEST, metavar="N", help="End each run after N steps.", show_default="when CMD ends"
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="Device it must fit on, e.g. H100-SXM5.", show_default=False),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="Memory it must fit in, e.g. 24GiB.", show_default=False),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep the runs in this folder, one per size.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the batch size that fits and is fastest.

    Shows the largest batch that fits on a device, and the smallest that comes close to the best throughput. The whole
    command runs once per batch size, not only its training; its output goes to stderr.
    """
    from lostflops.cli.fit_runs import FitJob, measure_batch, read_kept_batch, remember_command
    from lostflops.core.errors import LostflopsError
    from lostflops.predict.fit.answers import result
    from lostflops.predict.fit.batches import fit_batches

    capacity = _capacity(device, memory)
    place = _place(words, argument, variable)
    chosen = _sizes(sizes, place, variable)
    name = variable or (place.name if place else "")
    if keep is not None:
        remember_command(keep, [*(place.replace_batch_size(words, 0) if place else words), variable or "", str(steps)])
    runs: list[MeasuredBatch] = []
    failed: list[str] = []
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lostflops-fit-")))
        for number, size in enumerate(chosen, 1):
            job = FitJob(_words(words, place, size), _environment(variable, size), folder / f"batch-{size}", steps)
            before = read_kept_batch(size, job.folder)
            kept = f": reusing the run in {job.folder}" if before else ""
            tell(f"{name} {size} ({number} of {len(chosen)}){kept}")
            found = before or measure_batch(size, job)
            if isinstance(found, str):
                tell(f"{name} {size} {found}")
                failed.append(f"Batch size {size} is left out: its run {found}.")
            else:
                runs.append(found)
        if len(runs) < 2:
            raise LostflopsError(
                f"{len(runs)} of {len(chosen)} runs could be measured, but two are needed. {failed[0]}"
            )
        answer = result(done := fit_batches(runs), name, _room(done, capacity, device), tuple(failed))
    given = {"argument": argument, "variable": variable, "sizes": sizes, "steps": steps}
    given |= {"device": device, "memory": memory}
    following = (
        command("memory", keep / f"batch-{runs[-1].batch}")
        if keep
        else command("fit", "--keep", "fit", *_repeat_options(given), "--", *words)
    )
    show(replace(answer, next_command=following), as_json)
    sys.stdout.flush()


def _capacity(device: str | None, memory: str | None) -> int | None:
    from lostflops.core.errors import UsageError
    from lostflops.core.units import parse_bytes
    from lostflops.predict.estimate.rates import capacity, device_named

    if memory is not None:
        if (size := parse_bytes(memory)) <= 0:
            raise UsageError(f"--memory {memory} is not above zero: give a size such as 24GiB")
        return size
    if device is None:
        return None
    if (known := capacity(device_named(device))) is None:
        raise UsageError(
            f"{device} is sold with several memory sizes, or its memory size is unknown: give --memory, e.g. 24GiB"
        )
    return known


def _place(words: list[str], argument: str | None, variable: str | None) -> "BatchArgument | None":
    from lostflops.core.errors import UsageError
    from lostflops.predict.fit.batch_argument import batch_argument

    if variable is None:
        return batch_argument(words, argument)
    if argument is not None:
        raise UsageError("--argument and --variable both set the batch size: give only one")
    return None


def _sizes(text: str | None, place: "BatchArgument | None", variable: str | None) -> list[int]:
    from lostflops.core.errors import UsageError

    if text is not None:
        try:
            found = sorted({int(word) for word in text.split(",")})
        except ValueError:
            found = []
        if len(found) < 2 or found[0] < 1:
            raise UsageError(f"--sizes {text}: give two or more whole numbers, such as 8,16,32")
        return found
    told = str(place.size) if place else os.environ.get(variable or "", "").strip()
    given = int(told) if told.isdecimal() else 0
    if given < 1:
        raise UsageError(f"environment variable {variable} is not a batch size: set it, or give --sizes 8,16,32")
    return sorted({max(1, given // 2), given, 2 * given} | ({4} if given == 1 else set()))


def _words(words: list[str], place: "BatchArgument | None", size: int) -> list[str]:
    return place.replace_batch_size(words, size) if place else words


def _environment(variable: str | None, size: int) -> dict[str, str]:
    return {**os.environ, **({variable: str(size)} if variable else {})}


def _room(found: "FitResult", capacity: int | None, device: str | None) -> "Room | None":
    from lostflops.predict.fit.room import room

    if capacity is None or not found.memories:
        return None
    return room(capacity, found.memories, [run.process for run in found.runs], is_accelerator=device is not None)


def _repeat_options(given: dict[str, str | int | None]) -> list[str]:
    return [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
