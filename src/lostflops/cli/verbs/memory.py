"""`lostflops memory`: what is using the memory, and what caused the peak."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lostflops.cli.output import JsonOption, MarkdownOption, RunArgument, command, name_run, show
from lostflops.cli.scope import RankOption, rank_bar

EXAMPLE = "lostflops memory run --rank 0 --by module"


class MemoryBy(StrEnum):
    LAYER = "layer"
    MODULE = "module"
    OP = "op"
    LINE = "line"


def memory(
    run: RunArgument,
    *,
    rank: RankOption = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="D",
            help="Only this device (cuda:0) or kind of device (cpu).  [default: accelerators, if any]",
            show_default=False,
        ),
    ] = None,
    by: Annotated[MemoryBy, typer.Option("--by", help="How to split each owner's memory.")] = MemoryBy.LAYER,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Show which modules to recompute in backward: peak against time.")
    ] = False,
    as_json: JsonOption = False,
    as_markdown: MarkdownOption = False,
) -> None:
    """Show what uses the memory, and what made the peak.

    Shows when the peak was, in which phase, module and op; what was alive then, by owner (parameters, gradients,
    optimizer state, activations, ...) and layer; owners over time; a comparison of ranks. Owners add up to the
    allocator's total; memory without a known owner is shown as unattributed.
    """
    from lostflops.cli.scope import open_run

    with open_run(run) as opened, rank_bar() as progress:
        result = opened.memory(rank=rank or (), device=device, by=by.value, frontier=frontier, progress=progress)
    found = result.to_json()
    following = _suggest_whatif(found, run) if frontier else _next(found, run, by)
    show(replace(result, next_command=following, run=name_run(run)), as_json, as_markdown=as_markdown)


def _suggest_whatif(found: dict[str, Any], run: Path) -> str:
    """Return the command that predicts the step time with the middle choice."""
    choices = [row["peak"] for row in found["frontier"] if row["change"]]
    if not choices:
        return command("memory" if found["frontier"] else "doctor", run)
    return command("whatif", run, "--change", f"recompute={choices[len(choices) // 2]}B")


def _next(found: dict[str, Any], run: Path, by: MemoryBy) -> str:
    """Return the command that would reduce the largest owner, or that shows more about it."""
    if found["peak"] is None:
        return command("doctor", run)
    if found["growth"]:
        return command("diagnose", run)
    largest = max(found["owners"], key=lambda held: held["bytes"])["owner"]
    if largest == "activations":
        return command("memory", run, "--frontier")
    if largest in ("optimizer_state", "gradients", "parameters") and len(found["ranks"]) > 1:
        return command("whatif", run, "--change", "zero=1")
    if by is MemoryBy.LAYER and len(found["layers"]) > 1:
        return command("memory", run, "--by", "module")
    return command("whatif", run, "--all")
