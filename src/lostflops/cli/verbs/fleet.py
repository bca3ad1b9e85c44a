"""`lostflops fleet`: what many runs show together, and the place where their summaries are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import JsonOption, command, show
from lostflops.cli.scope import bar_of

if TYPE_CHECKING:
    from lostflops.core.results import Result

EXAMPLE = "lostflops fleet add fleet run1 run2; lostflops fleet fleet --by team"
_ADD, _COMPACT, _EXPIRE = "add", "compact", "expire"
_USAGE = "write: lostflops fleet PLACE, lostflops fleet add PLACE RUN..., compact PLACE, or expire PLACE --before DATE"


def fleet(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[add|compact|expire] PLACE [RUN]...",
            help="A folder with runs, or what add makes: a folder, s3://bucket/path, or pyiceberg's catalog:NAME.",
            show_default=False,
        ),
    ],
    *,
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="WHAT",
            help="Also sum hours by this: job, device, host, week, or the name of a label, such as team.",
            show_default=False,
        ),
    ] = "",
    job: Annotated[
        str,
        typer.Option(
            "--job", metavar="NAME", help="Only runs of this job; * is any letters: 'llama*'.", show_default=False
        ),
    ] = "",
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="NAME=VALUE", help="Only runs with this label; can be repeated.", show_default=False
        ),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="DATE",
            help="Only runs that started on this day (2026-01-31) or later.",
            show_default=False,
        ),
    ] = "",
    week: Annotated[
        str,
        typer.Option(
            "--week", metavar="DATE", help="Only runs that started in the week of this day.", show_default=False
        ),
    ] = "",
    host: Annotated[
        str, typer.Option("--host", metavar="NAME", help="Only runs that used this host.", show_default=False)
    ] = "",
    status: Annotated[
        str,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only jobs whose step time is slower, faster, unchanged or unknown.",
            show_default=False,
        ),
    ] = "",
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="DATE",
            help="With expire: forget runs that ended before this day.",
            show_default=False,
        ),
    ] = "",
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="DIR", help="Write each table to a CSV file in this folder, too.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show where the hours of many runs go.

    Shows hours by cause, the fixes that return most, hosts that are slow in job after job, jobs that became slower,
    and what each job reaches beside others. PLACE may be a folder with runs in it. For thousands of runs, `add` keeps a
    row of each in a table; it needs pip install 'lostflops[fleet]'.
    """
    from lostflops import api
    from lostflops.core.errors import UsageError

    action, place, runs = _parse(words)
    if csv and action:
        raise UsageError(f"--csv writes an answer, which {action} does not give: lostflops fleet {place} --csv {csv}")
    if before and action != _EXPIRE:
        raise UsageError("--before is only for expire; to choose runs, give --since DATE")
    if action == _ADD:
        with bar_of("runs") as progress:
            result = api.add_to_fleet(place, runs, progress=progress)
    elif action == _COMPACT:
        result = api.compact_fleet(place)
    elif action == _EXPIRE:
        if not before:
            raise UsageError("expire forgets runs: give --before DATE")
        result = api.expire_fleet(place, before)
    else:
        with bar_of("runs") as progress:
            chosen = {"job": job, "since": since, "week": week, "host": host, "status": status}
            result = api.ask_fleet(place, by=by, labels=labels or (), **chosen, progress=progress)
    if csv:
        _write_tables(csv, result)
    following = command("fleet", place) if action else command("fleet", place, "--by", "job" if by != "job" else "host")
    show(replace(result, next_command=following), as_json)


def _write_tables(folder: Path, result: Result) -> None:
    """Write each table with all rows and exact values: NAME.csv, with the names that JSON has."""
    from lostflops.core.errors import RunError
    from lostflops.core.results import Table
    from lostflops.show.report.plain import write_csv

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in (*result.blocks, *result.more):
            if isinstance(table, Table):
                with (folder / f"{table.name}.csv").open("w", encoding="utf-8", newline="") as file:
                    write_csv([field.name for field in table.fields], table.rows, file)
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error.strerror}. Choose another folder.") from None


def _parse(words: list[str]) -> tuple[str, str, list[str]]:
    """Return the action, which may be empty, the place and the runs."""
    from lostflops.core.errors import UsageError

    action = words[0] if len(words) > 1 and words[0] in (_ADD, _COMPACT, _EXPIRE) else ""
    rest = words[1:] if action else words
    if not rest or (action != _ADD and len(rest) > 1) or (action == _ADD and len(rest) < 2):
        raise UsageError(_USAGE)
    return action, rest[0], rest[1:]
