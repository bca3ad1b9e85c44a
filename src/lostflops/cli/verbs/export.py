"""`lostflops export`: a run for other tools."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import RankOption, StepOption, rank_bar

if TYPE_CHECKING:
    from lostflops.core.results import Result

HOW_TO_OPEN = (
    "To view it, open https://ui.perfetto.dev and choose 'Open trace file'. The page reads it in your browser: "
    "the trace is not uploaded."
)
EXAMPLE = "lostflops export run --perfetto trace.pftrace.gz --step 10 --step 11"


def export(
    run: RunArgument,
    *,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            "--perfetto",
            metavar="FILE",
            help="Write a Perfetto trace to this file, compressed if its name ends in .gz.",
            show_default=False,
        ),
    ] = None,
    wandb: Annotated[
        str | None,
        typer.Option(
            "--wandb", metavar="PROJECT", help="Log the summary to this Weights & Biases project.", show_default=False
        ),
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option("--mlflow", metavar="URI", help="Log the summary to this MLflow server.", show_default=False),
    ] = None,
    tensorboard: Annotated[
        str | None,
        typer.Option(
            "--tensorboard", metavar="DIR", help="Write the summary as TensorBoard events.", show_default=False
        ),
    ] = None,
    rank: RankOption = None,
    step: StepOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a run to Perfetto, W&B, MLflow or TensorBoard.

    A Perfetto trace has all ranks on one clock: steps, ledger, waits, transfers, memory and every event. Arrows connect
    launches to kernels, and the ranks of each collective. Trackers get the summary, the time of each step and the page.
    """
    from lostflops.core.errors import UsageError

    trackers = {"wandb": wandb, "mlflow": mlflow, "tensorboard": tensorboard}
    chosen = {name: where for name, where in trackers.items() if where is not None}
    if len(chosen) + (perfetto is not None) != 1:
        raise UsageError("give one of --perfetto FILE, --wandb PROJECT, --mlflow URI and --tensorboard DIR")
    if perfetto is not None:
        show(_write_trace(run, perfetto, rank or [], step or []), as_json)
    elif rank or step:
        raise UsageError("a tracker gets the whole run: --rank and --step are for --perfetto")
    else:
        show(_log_summary(run, *chosen.popitem()), as_json)


def _log_summary(path: Path, tracker: str, where: str) -> "Result":
    from lostflops.cli.scope import open_run
    from lostflops.core.results import Figure, Result

    with open_run(path) as run:
        place = run.log_to(tracker, where)
    return Result(
        name="export",
        title="Logged",
        verdict=f"Logged the summary of {run.stored.name} to {tracker}: {place}",
        next_command=command("open", path),
        more=(Figure("tracker", tracker), Figure("place", place)),
    )


def _write_trace(path: Path, file: Path, ranks: list[int], steps: list[int]) -> "Result":
    from lostflops.cli.scope import open_run
    from lostflops.core.errors import UsageError
    from lostflops.core.results import Figure, Result
    from lostflops.core.units import format_bytes, pluralise
    from lostflops.show.export.perfetto import write_perfetto

    if file.is_dir():
        raise UsageError(f"{file} is a folder; give the name of a file")
    if not file.parent.is_dir():
        raise UsageError(f"folder {file.parent} does not exist")
    # A file that is there stays whole until the new one is.
    part = file.with_name(f"{file.name}.part")
    try:
        with open_run(path) as opened, rank_bar() as progress, ExitStack() as held:
            stream = _open_stream(part, held, packed=file.suffix == ".gz")
            made = write_perfetto(opened.stored, stream, ranks=ranks, steps=steps, progress=progress)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    size = file.stat().st_size
    slices, tracks, own = (
        pluralise(made.slices, "slice"),
        pluralise(made.tracks, "track"),
        pluralise(made.ranks, "rank"),
    )
    return Result(
        name="export",
        title="Perfetto trace",
        verdict=f"Wrote {file} ({format_bytes(size)}): {slices} on {tracks} of {own}.",
        notes=(HOW_TO_OPEN,),
        next_command=command("open", path),
        more=(
            Figure("file", str(file)),
            Figure("bytes", size),
            Figure("ranks", made.ranks),
            Figure("slices", made.slices),
            Figure("tracks", made.tracks),
            Figure("points", made.points),
        ),
    )


def _open_stream(file: Path, held: ExitStack, *, packed: bool) -> BinaryIO:
    from lostflops.show.export.perfetto import compress_stream

    stream = held.enter_context(file.open("wb", buffering=1 << 20))
    return held.enter_context(compress_stream(stream)) if packed else stream
