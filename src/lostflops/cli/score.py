"""`lostflops score`: whether a prediction came true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, command, show

EXAMPLE = "lostflops score p-7f3a2c91 --with run-2"


def score(
    prediction: Annotated[
        str | None, typer.Argument(metavar="PREDICTION", help="Id of the prediction.", show_default=False)
    ] = None,
    *,
    measured: Annotated[
        Path | None,
        typer.Option("--with", metavar="RUN", help="Run that was made with the changes.", show_default=False),
    ] = None,
    made_from: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Run that holds the prediction.  [default: as this machine remembers, else beside the other]",
            show_default=False,
        ),
    ] = None,
    listed: Annotated[
        Path | None,
        typer.Option("--list", metavar="RUN", help="Show all predictions of this run.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a prediction of whatif against a real run.

    The mean step of the new run is measured as that of the old one was. The score is recorded with the prediction.
    """
    from lostflops.errors import UsageError
    from lostflops.predict.answers import score as scores
    from lostflops.predict.answers.predictions import find
    from lostflops.store.run import Run

    if listed is not None and prediction is None and measured is None:
        with Run.open(listed) as run:
            result = scores.listed(run)
        open_ones = [row["prediction_id"] for row in result.to_json()["predictions"] if row["measured_ns"] is None]
        following = ("score", open_ones[0], "--with", "NEW_RUN") if open_ones else ("whatif", listed, "--all")
        show(replace(result, next_command=command(*following)), as_json)
        return
    if prediction is None or measured is None or listed is not None:
        raise UsageError("give the id of a prediction and --with RUN, or --list RUN alone")
    with Run.open(measured) as run:
        places = [_folder(made_from)] if made_from else [run.path.parent, Path.cwd()]
        found, holder = find(prediction, places, known=made_from is None)
        result = scores.score(found, holder, run)
    others = command("score", "--list", holder)
    show(replace(result, next_command=command("diff", holder, measured), other_command=others), as_json)


def _folder(run: Path) -> Path:
    """Predictions from a run in a store are kept beside the copy that is here."""
    from lostflops.store.mirror import mirrored
    from lostflops.store.places import remote

    address = remote(run)
    return mirrored(address) if address is not None else run
