"""`lostflops memory`: whose memory it is, and what made the peak."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lostflops.cli.output import JsonOption, MarkdownOption, RunArgument, command, show
from lostflops.cli.scope import RankOption, rank_bar

EXAMPLE = "lostflops memory run --rank 0 --by module"


class By(StrEnum):
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
            help="Of this device, such as cuda:0, or kind, such as cpu.  [default: accelerators where there are any]",
            show_default=False,
        ),
    ] = None,
    by: Annotated[By, typer.Option("--by", help="What each owner's memory is parted by.")] = By.LAYER,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Which modules to run again in backward: peak against time.")
    ] = False,
    as_json: JsonOption = False,
    as_markdown: MarkdownOption = False,
) -> None:
    """Show what uses the memory, and what made the peak.

    When most was allocated and in which phase, module and op; what was alive then, by owner (parameters, gradients,
    optimizer state, activations, ...) and layer; owners over time; rank against rank. Owners sum to what the allocator
    says, and what nothing tells about is shown as unattributed.
    """
    from lostflops.analyze.memory import memory as analyse
    from lostflops.errors import UsageError
    from lostflops.store.run import Run

    if frontier:
        from lostflops.ledger.scope import scope
        from lostflops.predict.recomputation.tables import frontier_of

        if device is not None or by is not By.LAYER:
            raise UsageError(
                "--frontier is of the device with the highest peak, by module: leave out --device and --by"
            )
        with Run.open(run) as opened:
            found = frontier_of(opened, scope(opened, None, rank).ranks if rank else ())
        show(replace(found, next_command=_priced(found.to_json(), run)), as_json, as_markdown=as_markdown)
        return
    with Run.open(run) as opened, rank_bar() as progress:
        result = analyse(opened, ranks=rank or (), device=device, by=by.value, progress=progress)
    show(replace(result, next_command=_next(result.to_json(), run, by)), as_json, as_markdown=as_markdown)


def _priced(found: dict[str, Any], run: Path) -> str:
    """What a step would take with the middle one of the choices."""
    choices = [row["peak"] for row in found["frontier"] if row["change"]]
    if not choices:
        return command("memory" if found["frontier"] else "doctor", run)
    return command("whatif", run, "--change", f"recompute={choices[len(choices) // 2]}B")


def _next(found: dict[str, Any], run: Path, by: By) -> str:
    """What would help against the largest owner, or what tells more about it."""
    if found["peak"] is None:
        return command("doctor", run)
    if found["growth"]:
        return command("diagnose", run)
    largest = max(found["owners"], key=lambda held: held["bytes"])["owner"]
    if largest == "activations":
        return command("memory", run, "--frontier")
    if largest in ("optimizer_state", "gradients", "parameters") and len(found["ranks"]) > 1:
        return command("whatif", run, "--change", "zero=1")
    if by is By.LAYER and len(found["layers"]) > 1:
        return command("memory", run, "--by", "module")
    return command("whatif", run, "--all")
