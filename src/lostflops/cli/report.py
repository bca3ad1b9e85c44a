"""`lostflops report`: where the time went."""

from dataclasses import astuple, replace
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from lostflops.cli.output import JsonOption, MarkdownOption, RunArgument, command, show
from lostflops.cli.scope import (
    ModelFlopsOption,
    PeakOption,
    RankOption,
    StepOption,
    WindowOption,
    rank_bar,
    window_kind,
)
from lostflops.cli.written_page import written_page

EXAMPLE = "lostflops report run --by rank"


class By(StrEnum):
    PHASE = "phase"
    ANNOTATION = "annotation"
    MODULE = "module"
    LAYER = "layer"
    RANK = "rank"


def report(
    run: RunArgument,
    *,
    window: WindowOption = None,
    rank: RankOption = None,
    step: StepOption = None,
    by: Annotated[By, typer.Option("--by", help="What to show the ledger by; JSON holds all.")] = By.PHASE,
    peak_tflops: PeakOption = None,
    model_flops: ModelFlopsOption = None,
    tokens_per_step: Annotated[
        float | None,
        typer.Option(
            "--tokens-per-step", min=1, metavar="N", help="Tokens in one step, of all ranks.", show_default=False
        ),
    ] = None,
    samples_per_step: Annotated[
        float | None,
        typer.Option(
            "--samples-per-step",
            min=1,
            metavar="N",
            help="Samples in one step, of all ranks.",
            show_default=False,
        ),
    ] = None,
    findings: Annotated[
        bool, typer.Option("--findings/--no-findings", help="Say what to do about it: the first of lostflops diagnose.")
    ] = True,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page with all views into this file.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    as_markdown: MarkdownOption = False,
) -> None:
    """Show where the time of a run went.

    A ledger in which every nanosecond of every rank stands on one line, the way from the device's peak to the
    model's FLOPs (MFU), the largest losses with their evidence, and what all that rests on. A run without a deep window
    shows what all its steps tell. With --html it writes a page with all views of the run instead, one file that needs
    no network.
    """
    from lostflops.advise.summary import report_with_findings
    from lostflops.analyze.report import report as analyse
    from lostflops.errors import UsageError
    from lostflops.ledger.mfu import Claims
    from lostflops.store.run import Run

    said = Claims(peak_tflops, model_flops, tokens_per_step, samples_per_step)
    if not all(isfinite(value) for value in astuple(said) if value is not None):
        raise UsageError("the peak, FLOPs, tokens and samples must be finite numbers")
    if html:
        if window or rank or step or by is not By.PHASE or not findings or as_markdown:
            raise UsageError("a page shows the whole run: --html takes neither a part of it nor another form")
        show(written_page(run, html, said), as_json)
        return
    with Run.open(run) as opened, rank_bar() as progress:
        result = analyse(
            opened,
            window=window_kind(window),
            ranks=rank or (),
            steps=step or (),
            by=by.value,
            said=said,
            progress=progress,
        )
        # Causes are those of the whole run: some ranks or steps alone do not show them.
        if findings and not (rank or step or window):
            result = report_with_findings(result, opened)
    following = command(*_next(result.to_json(), run))
    show(replace(result, next_command=following), as_json, as_markdown=as_markdown)


def _next(found: dict[str, Any], run: Path) -> tuple[str | Path, ...]:
    return ("diagnose" if found.get("findings") else _next_verb(found), run)


def _next_verb(found: dict[str, Any]) -> str:
    """The verb that looks into the largest loss."""
    if not found["ledger"]["total_ns"] and "recorded" in found:
        return "steps"
    largest = found["losses"][0]["line"] if found["losses"] else "compute"
    if largest.startswith("comm."):
        return "comm" if largest == "comm.transfer" else "ranks"
    return "steps" if largest.startswith("idle.") and found["window"]["steps"] else "kernels"
