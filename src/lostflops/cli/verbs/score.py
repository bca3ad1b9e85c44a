"""`lostflops score`: compare a prediction with a real run."""

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
        typer.Option("--with", metavar="RUN", help="Run recorded with the changes.", show_default=False),
    ] = None,
    made_from: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Run the prediction was made from.  [default: as saved on this machine, else next to the --with run]",
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

    Measures the mean step of the new run in the same way as that of the old run. The score is saved with the
    prediction.
    """
    from lostflops.api import score as compare
    from lostflops.cli.scope import open_run
    from lostflops.core.errors import UsageError

    if listed is not None and prediction is None and measured is None:
        with open_run(listed) as run:
            result = run.predictions()
        unscored = [row["prediction_id"] for row in result.to_json()["predictions"] if row["measured_ns"] is None]
        following = ("score", unscored[0], "--with", "NEW_RUN") if unscored else ("whatif", listed, "--all")
        show(replace(result, next_command=command(*following)), as_json)
        return
    if prediction is None or measured is None or listed is not None:
        raise UsageError("give the id of a prediction and --with RUN, or only --list RUN")
    result = compare(prediction, measured, made_from=made_from)
    holder = Path(result.predicted_from)
    others = command("score", "--list", holder)
    show(replace(result, next_command=command("diff", holder, measured), other_command=others), as_json)
