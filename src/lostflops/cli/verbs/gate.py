"""`lostflops gate`: an exit code for continuous integration."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Final

import typer

from lostflops.cli.output import JsonOption, MarkdownOption, command, show
from lostflops.cli.run_lists import AnywayOption, part, runs_of
from lostflops.cli.scope import bar_of
from lostflops.core.errors import LostflopsError

FAILED: Final = 70
"""Exit code of failures that other verbs end with 1: for gate 1 means that the candidate regressed."""
EXAMPLE = "lostflops gate --baseline 'main-*' --candidate 'branch-*' --max-regress 3%"


def gate(
    *,
    baseline: Annotated[
        str,
        typer.Option(
            "--baseline",
            metavar="RUNS",
            help="One or more runs, separated by commas; globs and folders of runs work too.",
            show_default=False,
        ),
    ],
    candidate: Annotated[
        str,
        typer.Option(
            "--candidate", metavar="RUNS", help="Runs of the change under test, in the same form.", show_default=False
        ),
    ],
    max_regress: Annotated[
        str, typer.Option("--max-regress", metavar="SHARE", help="How much slower a step may be, e.g. 3%.")
    ] = "3%",
    anyway: AnywayOption = False,
    as_markdown: MarkdownOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fail in CI if a run is slower than its baseline.

    Exits with 0 if the candidate is within the limit, 1 if it regressed, 3 if inconclusive.

    With 3, the output says how many runs or steps are needed. A limit below the noise of the runs gives 3, unless the
    candidate is clearly within the limit, or slower by more than limit plus noise. 2 and codes above 3 are errors.
    """
    from lostflops.api import gate as judge

    before, after, limit = runs_of(baseline), runs_of(candidate), part(max_regress, "--max-regress")
    with _never_one():
        with bar_of("runs") as progress:
            result, code = judge(before, after, max_regress=limit, anyway=anyway, progress=progress)
        try:
            show(replace(result, next_command=command("diff", baseline, candidate)), as_json, as_markdown=as_markdown)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has seen enough; the exit code is for another
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(code)


@contextmanager
def _never_one() -> Iterator[None]:
    try:
        yield
    except LostflopsError:
        raise
    except OSError as error:
        print(f"lostflops: {error}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    except Exception:  # noqa: BLE001 - a bug is no regression
        traceback.print_exc()
        raise typer.Exit(FAILED) from None
