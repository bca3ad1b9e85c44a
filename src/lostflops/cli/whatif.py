"""`lostflops whatif`: what a step would take if something were changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.network import CalibrationOption, TopologyOption, described, times_of
from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import bar_of
from lostflops.cli.tune import SIZES, Setting, tune

if TYPE_CHECKING:
    from lostflops.predict.answers.facts_of import Told
    from lostflops.results import Result

EXAMPLE = "lostflops whatif run --change bucket_mb=50 --change network.bandwidth=2x"


def whatif(
    run: RunArgument,
    *,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--change", metavar="NAME=VALUE", help="What to change; may be given more than once.", show_default=False
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show all changes, and which apply to this run.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Try every change alone, and rank them by gain.")] = False,
    tuned: Annotated[
        str | None,
        typer.Option(
            "--tune",
            metavar="NAME[=A,B,...]",
            help="Find the best value of a setting: bucket_mb, or bucket_mb=5,25,100.",
            show_default=False,
        ),
    ] = None,
    calibration: CalibrationOption = None,
    topology: TopologyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict the step time with something changed.

    The run is replayed as a graph of tasks, as it was and with the changes in their order. An answer to --change is
    kept in the run under an id, and lostflops score compares it with a later run; those of --all are not kept.
    """
    from lostflops.errors import UsageError

    if bool(change) + listed + everything + (tuned is not None) != 1:
        raise UsageError("give one of --change NAME=VALUE, --list, --all and --tune bucket_mb")
    if tuned is not None:
        name, _, sizes = tuned.partition("=")
        if name not in ("bucket_mb", "bucket"):
            raise UsageError(f"--tune {tuned}: only bucket_mb can be tuned; --all tries one value of every change")
        return tune(
            Setting.BUCKET, run, sizes=sizes or SIZES, calibration=calibration, topology=topology, as_json=as_json
        )
    cluster = described(calibration, topology)
    times = times_of(calibration, cluster) if calibration or cluster else None
    if change:
        return show(_asked(run, change, times), as_json)
    return show(_listed(run, times) if listed else _all(run, times), as_json)


def _asked(path: Path, changes: list[str], times: Told | None) -> Result:
    from lostflops.predict.answers.answer import wanted
    from lostflops.predict.answers.whatif import whatif as predict
    from lostflops.store.run import Run

    asked = [wanted(text) for text in changes]
    with Run.open(path) as run, bar_of("ranks") as progress:
        result = predict(run, asked, times, progress=progress)
    kept = result.to_json()["prediction_id"]
    following = command("score", kept, "--with", "NEW_RUN") if kept else command("whatif", path, "--list")
    return replace(result, next_command=following, other_command=command("open", path))


def _listed(path: Path, times: Told | None) -> Result:
    from lostflops.errors import UnknownCost, UsageError
    from lostflops.predict.answers.baseline import baseline
    from lostflops.predict.answers.ranking import listing
    from lostflops.store.run import Run

    with Run.open(path) as run, bar_of("ranks") as progress:
        try:
            result = listing(baseline(run, times, progress=progress))
        except (UnknownCost, UsageError) as error:
            result = listing(None, str(error))
    return replace(result, next_command=command("whatif", path, "--all"))


def _all(path: Path, times: Told | None) -> Result:
    from lostflops.advise.summary import ranking_with_findings
    from lostflops.predict.answers.baseline import baseline, replayed_once
    from lostflops.predict.answers.ranking import ranking
    from lostflops.store.run import Run

    with Run.open(path) as run, replayed_once():
        with bar_of("ranks") as progress:
            start = baseline(run, times, progress=progress)
        with bar_of("changes") as progress:
            result, best = ranking(start, progress=progress)
        if times is None:
            result = ranking_with_findings(result, run)
    return replace(result, next_command=command("whatif", path, "--change", best or "NAME=VALUE"))
