"""`lostflops verify`: whether every file of a run still has the bytes that were written."""

from dataclasses import replace

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, show

EXAMPLE = "lostflops verify run"


def verify(run: RunArgument, as_json: JsonOption = False) -> None:
    """Check that no file of a run was damaged.

    Reads every table file, in a folder or an object store, and compares it with its checksum. Other verbs compare the
    sizes of all table files and the checksums of the tables that they read. The exit code is 5 if a file is damaged.
    """
    from lostflops.api import verify as examine
    from lostflops.cli.scope import bar_of
    from lostflops.core.errors import BrokenRun

    with bar_of("files") as progress:
        result = examine(run, progress=progress)
    following = command("report", run) if result.is_intact else command("ingest", "TRACES", "-o", "NEW_RUN")
    show(replace(result, next_command=following), as_json)
    if not result.is_intact:
        raise typer.Exit(BrokenRun.exit_code)
