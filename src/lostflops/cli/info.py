"""`lostflops info`: what a run holds, and how far it can be trusted."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lostflops.cli.output import JsonOption, RunArgument, command, show

if TYPE_CHECKING:
    from lostflops.results import Result

EXAMPLE = "lostflops info run"


def info(run: RunArgument, as_json: JsonOption = False) -> None:
    """Show what a run contains, and how good its data is.

    Ranks, devices, steps, events, collectives, what is missing, and how far each rank can be trusted.
    """
    held, trust = describe(run)
    if as_json:
        from lostflops.report.plain import write_json

        document = {"schema": "lostflops.info/1", "contents": held.to_json(), "quality": trust.to_json()}
        write_json(document, sys.stdout)
        return
    show(held, as_json=False)
    print()
    show(replace(trust, next_command=command("report", run), other_command=command("sql", run)), as_json=False)


def describe(path: Path) -> "tuple[Result, Result]":
    from lostflops.analyze.contents import contents
    from lostflops.analyze.quality import quality
    from lostflops.results import Pair, Pairs
    from lostflops.store.places import remote
    from lostflops.store.run import Run

    with Run.open(path) as run:
        held, trust = contents(run), quality(run)
        if remote(path):
            sizes = [file.bytes for files in run.manifest.files.values() for file in files]
        else:
            sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
    disk = Pairs(
        "disk", "On disk", (Pair("bytes", sum(sizes), "bytes", "Size"), Pair("files", len(sizes), "count", "Files"))
    )
    return replace(held, blocks=(*held.blocks, disk)), trust
