"""Was a prediction right? A later run measures what was predicted, and its score stays with the prediction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lostflops.account.ledger.few_steps import warm_up
from lostflops.account.ledger.record import records
from lostflops.account.ledger.windows import WindowKind, window
from lostflops.account.pace.normal import FEWEST, normal_steps
from lostflops.core.errors import UsageError
from lostflops.core.results import Field, Figure, Pair, Pairs, Result, Table, Value
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.predict.whatif import predictions
from lostflops.predict.whatif.predictions import Score, StoredPrediction

if TYPE_CHECKING:
    from lostflops.store.run import Run


def score(prediction: StoredPrediction, holder: Path, run: Run) -> Result:
    """Measure `run` in the same way as the run of the prediction, and store the score in `holder`, the run that holds
    the prediction. Scoring a run again replaces its score. The run that the prediction was made from is not scored."""
    scored = _score_prediction(prediction, run)
    notes = list(_notes(prediction, scored))
    others = [old for old in prediction.scores if old.run.data != scored.run.data]
    if scored.run.data != prediction.run.data:
        prediction.scores = [*others, scored]
        try:
            predictions.save(prediction, holder)
        except OSError as error:
            notes.append(f"The score could not be stored: {holder}: {error.strerror}.")
    return Result(
        name="score",
        title=f"Prediction {prediction.id}: {prediction.text}",
        verdict=_verdict(prediction, scored),
        blocks=(_figures(prediction, scored),),
        notes=tuple(notes),
        more=(
            Figure("prediction_id", prediction.id),
            Figure("interval", prediction.interval),
            Figure("changes", tuple(f"{asked.name}={asked.value}" for asked in prediction.changes)),
            Figure("scored_run", scored.run.path),
            Figure("date", scored.date),
        ),
    )


def step_times(run: Run) -> list[int]:
    """Return the times of all whole steps of all ranks in ns, without a first step that is warm-up: a prediction leaves
    it out too."""
    chosen = [rank for (rank,) in run.rows("select distinct rank from steps order by rank")]
    edges = [window(record, WindowKind.STEPS) for record in records(run, chosen)]
    number = np.array([step for one in edges for step in one.number], np.int64)
    took = np.array([time for one in edges for time in (one.stop - one.start).tolist()], np.int64)
    times: list[int] = took[number != warm_up(number, took)].tolist() if took.size else []
    return times


def measured_step(run: Run, steps_from: str) -> tuple[float, int]:
    """Return the step of a run in ns and the number of steps it comes from: the normal step if `steps_from` is
    `timings`, else the mean of the profiled steps over all ranks. Raise `UsageError` if `timings` are wanted and the
    run has too few normal steps."""
    normal = normal_steps(run) if steps_from == "timings" else None
    if normal is not None:
        return normal.location.value, int(normal.times.size)
    if steps_from == "timings":
        raise UsageError(
            f"{run.address} has fewer than {FEWEST} normal steps. The prediction is for normal steps, and profiled "
            "steps are slower: record a longer run"
        )
    times = step_times(run)
    return (sum(times) / len(times) if times else 0.0), len(times)


def _score_prediction(prediction: StoredPrediction, run: Run) -> Score:
    measured, steps = measured_step(run, prediction.baseline.steps_from)
    if not measured:
        raise UsageError(
            f"{run.address} recorded no whole step, so the prediction cannot be scored: call profiler.step() in the "
            "loop, or use lostflops run"
        )
    low, high = prediction.interval
    origin = predictions.origin_of(run)
    gain = 1 - measured / prediction.baseline.measured_ns
    predicted = prediction.predicted_ns - prediction.baseline.measured_ns
    return Score(
        run=origin,
        date=predictions.now(),
        measured_ns=round(measured),
        steps=steps,
        predicted_ns=prediction.predicted_ns,
        error=prediction.predicted_ns / measured - 1,
        inside=low <= measured <= high,
        in_advance=origin.recorded >= prediction.date,
        gain=gain,
        sign_right=(gain > 0) == (predicted < 0) if predicted else None,
    )


def _verdict(prediction: StoredPrediction, scored: Score) -> str:
    if scored.run.data == prediction.run.data:
        return (
            "No score: the prediction was made from this run. Give the run that was recorded with the changes applied."
        )
    where = "inside" if scored.inside else "OUTSIDE"
    sign = {True: "the sign of the gain was right", False: "the sign of the gain was WRONG", None: "no gain predicted"}
    return (
        f"Predicted {format_ns(prediction.predicted_ns)}, measured {format_ns(scored.measured_ns)}: "
        f"{_off(scored.error)}, {where} the range; {sign[scored.sign_right]}."
    )


def _off(error: float) -> str:
    """Describe the error of a prediction.

    >>> _off(0.04), _off(-0.1)
    ('4.0% too long', '10.0% too short')
    """
    return f"{format_share(abs(error))} too {'long' if error > 0 else 'short'}" if error else "exactly right"


def _figures(prediction: StoredPrediction, scored: Score) -> Pairs:
    low, high = prediction.interval
    return Pairs(
        "score",
        "",
        (
            Pair("baseline_ns", prediction.baseline.measured_ns, "ns", "measured before"),
            Pair("predicted_ns", prediction.predicted_ns, "ns", "predicted"),
            Pair("low_ns", low, "ns", "from"),
            Pair("high_ns", high, "ns", "to"),
            Pair("measured_ns", scored.measured_ns, "ns", "measured after"),
            Pair("error", scored.error, "share", "prediction error"),
            Pair("inside", scored.inside, "", "inside the range"),
            Pair("predicted_gain", prediction.gain, "share", "gain predicted"),
            Pair("gain", scored.gain, "share", "gain measured"),
            Pair("sign_right", scored.sign_right, "", "sign of the gain is right"),
            Pair("replay_error", prediction.baseline.replay_error, "share", "replay error"),
            Pair("in_advance", scored.in_advance, "", "predicted before the run"),
            Pair("predicted_on", prediction.date, "", "predicted on"),
        ),
    )


def _notes(prediction: StoredPrediction, scored: Score) -> Iterator[str]:
    """Yield what makes the comparison doubtful."""
    before, after = prediction.run, scored.run
    names = {asked.name for asked in prediction.changes}
    if before.data == after.data:
        return
    if not scored.in_advance:
        yield f"The run was recorded ({after.recorded}) before the prediction was made ({prediction.date})."
    if before.ranks != after.ranks and "world_size" not in names:
        yield (
            f"The runs differ in more than the change: {pluralise(before.ranks, 'rank')} before, "
            f"{pluralise(after.ranks, 'rank')} after."
        )
    if before.device != after.device and "device" not in names:
        old, new = (run.device or "no device" for run in (before, after))
        yield f"The runs differ in more than the change: {old}, then {new}."
    if before.backend != after.backend:
        yield f"The runs differ in more than the change: backend {before.backend}, then {after.backend}."


def list_predictions(run: Run) -> Result:
    """List all predictions of a run with their scores."""
    held = list(predictions.load_predictions(run.path))
    scores = [(one, scored) for one in held for scored in one.scores]
    inside = sum(scored.inside for _, scored in scores)
    found = pluralise(len(held), "prediction")
    verdict = (
        f"{found}, {pluralise(len(scores), 'score')}: {inside} inside the range, mean absolute error "
        f"{format_share(sum(abs(scored.error) for _, scored in scores) / len(scores))}."
        if scores
        else f"{found}, none scored yet."
    )
    stale = [one.id for one in held if one.run.data != predictions.data_of(run.manifest)]
    notes = (f"Made from traces that the run no longer holds: {', '.join(stale)}.",) if stale else ()
    return Result("scores", "Predictions of the run", verdict, (_tabulate_predictions(held),), notes)


def _tabulate_predictions(held: list[StoredPrediction]) -> Table:
    fields = (
        Field("prediction_id", label="id"),
        Field("changes"),
        Field("predicted_ns", "ns", "predicted"),
        Field("low_ns", "ns", shown=False),
        Field("high_ns", "ns", shown=False),
        Field("date", shown=False),
        Field("measured_ns", "ns", "measured"),
        Field("error", "share"),
        Field("inside"),
        Field("sign_right", shown=False),
        Field("scored_run", shown=False),
    )
    rows: list[tuple[Value, ...]] = []
    for one in held:
        told: list[tuple[Value, ...]] = [
            (scored.measured_ns, scored.error, scored.inside, scored.sign_right, scored.run.path)
            for scored in one.scores
        ]
        rows += [(one.id, one.text, one.predicted_ns, *one.interval, one.date, *each) for each in told or [(None,) * 5]]
    return Table("predictions", "", fields, tuple(rows))
