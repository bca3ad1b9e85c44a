"""Options that several verbs share (part of the run, peak and FLOPs given by the user), and their progress bar."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lostflops.api import TrainingRun


class WindowChoice(StrEnum):
    STEPS = "steps"
    TRACE = "trace"


WindowOption = Annotated[
    WindowChoice | None,
    typer.Option(
        "--window",
        help="Whole training steps, or everything recorded.  [default: steps if every rank has one]",
        show_default=False,
    ),
]
RankOption = Annotated[
    list[int] | None,
    typer.Option("--rank", metavar="R", help="Only this rank; can be repeated.", show_default=False),
]
StepOption = Annotated[
    list[int] | None,
    typer.Option("--step", metavar="S", help="Only this step; can be repeated.", show_default=False),
]

PeakOption = Annotated[
    float | None,
    typer.Option(
        "--peak-tflops", min=0.001, metavar="T", help="Dense peak of one device, in TFLOPS.", show_default=False
    ),
]
ModelFlopsOption = Annotated[
    float | None,
    typer.Option(
        "--model-flops",
        min=1,
        metavar="F",
        help="Model FLOPs per step, over all ranks (e.g. 6 x parameters x tokens).",
        show_default=False,
    ),
]
TokensOption = Annotated[
    float | None,
    typer.Option("--tokens-per-step", min=1, metavar="N", help="Tokens per step, over all ranks.", show_default=False),
]
SamplesOption = Annotated[
    float | None,
    typer.Option(
        "--samples-per-step", min=1, metavar="N", help="Samples per step, over all ranks.", show_default=False
    ),
]
MeshOption = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        metavar="SIZES",
        help="Device mesh, fastest-varying dimension first: tp=2,dp=2,pp=4.  "
        "[default: from process groups and their traffic]",
        show_default=False,
    ),
]


def rank_bar() -> AbstractContextManager[Callable[[int, int], None] | None]:
    return bar_of("ranks")


@contextmanager
def bar_of(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar if stderr is a terminal, from the first part that is done; otherwise nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as shown:
        update: Callable[[int, int], None] | None = None

        def report_progress(done: int, total: int) -> None:
            nonlocal update
            if update is None:
                update = shown.enter_context(_bar(what))
            update(done, total)

        yield report_progress


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def open_run(run: Path) -> "TrainingRun":
    """Open a run for questions, with a bar while ledgers are computed that the run lacks."""
    from lostflops.api import open as open_accounted

    with bar_of("computing ledgers") as progress:
        return open_accounted(run, progress=progress)
