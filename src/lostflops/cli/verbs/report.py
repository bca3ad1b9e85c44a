"""`lostflops report`: where the time went."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lostflops.cli.output import JsonOption, MarkdownOption, RunArgument, command, name_run, show
from lostflops.cli.scope import (
    ModelFlopsOption,
    PeakOption,
    RankOption,
    SamplesOption,
    StepOption,
    TokensOption,
    WindowOption,
    bar_of,
    rank_bar,
)

EXAMPLE = "lostflops report run --by rank"


class ReportBy(StrEnum):
    PHASE = "phase"
    JOB_PHASE = "job-phase"
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
    by: Annotated[
        ReportBy | None,
        typer.Option("--by", help="Also show the ledger by this. JSON has all of them.", show_default=False),
    ] = None,
    job: Annotated[
        bool,
        typer.Option("--job", help="Show the whole job, from the start of its command to its end, by rank."),
    ] = False,
    full: Annotated[
        bool,
        typer.Option("--full", help="Show everything: phases, utilization, overlap, throughput, memory, data quality."),
    ] = False,
    peak_tflops: PeakOption = None,
    model_flops: ModelFlopsOption = None,
    tokens_per_step: TokensOption = None,
    samples_per_step: SamplesOption = None,
    findings: Annotated[
        bool, typer.Option("--findings/--no-findings", help="Show the first findings of lostflops diagnose.")
    ] = True,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write all views as one HTML page to this file.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
    as_markdown: MarkdownOption = False,
) -> None:
    """Show where the time of a run went.

    Every nanosecond of every rank is on exactly one line of the ledger. Above it are the most valuable fixes, below it
    the evidence for the largest losses; --full adds the rest. --html writes all views as one page instead.
    """
    from lostflops.cli.scope import open_run
    from lostflops.core.errors import UsageError

    claims = {
        "peak_tflops": peak_tflops,
        "model_flops": model_flops,
        "tokens_per_step": tokens_per_step,
        "samples_per_step": samples_per_step,
    }
    if html:
        if window or rank or step or by or job or not findings or full or as_markdown:
            raise UsageError("a page shows the whole run: --html cannot be combined with a part of it or another form")
        with open_run(run) as opened, bar_of("questions") as progress:
            written = opened.page(html, **claims, progress=progress)
        show(replace(written, next_command=command("diff", run, "NEW_RUN")), as_json)
        return
    with open_run(run) as opened, rank_bar() as progress:
        result = opened.report(
            window=window,
            rank=rank or (),
            step=step or (),
            by=by or "",
            job=job,
            **claims,
            findings=findings,
            progress=progress,
        )
    more = command("report", run, "--full") if result.folded and not full else ""
    result = replace(result, folded=() if full else result.folded, other_command=more)
    following = command(*_next(result.to_json(), run))
    show(replace(result, next_command=following, run=name_run(run)), as_json, as_markdown=as_markdown)


def _next(found: dict[str, Any], run: Path) -> tuple[str | Path, ...]:
    return ("diagnose" if found.get("findings") else _next_verb(found), run)


def _next_verb(found: dict[str, Any]) -> str:
    """Return the verb that examines the largest loss."""
    if not found["ledger"]["total_ns"] and "recorded" in found:
        return "steps"
    largest = found["losses"][0]["line"] if found["losses"] else "compute"
    if largest.startswith("comm."):
        return "comm" if largest == "comm.transfer" else "ranks"
    return "steps" if largest.startswith("idle.") and found["window"]["steps"] else "kernels"
