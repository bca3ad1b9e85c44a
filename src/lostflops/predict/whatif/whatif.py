"""How long would a step take if something were changed, how certain is that, and how is it done?

The run becomes a graph of tasks, which is replayed as it was and with the changes. The prediction is the measured step
times the ratio of the two: the replay shows what a change does, never how long steps take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from lostflops.core.errors import NotApplicable
from lostflops.core.results import Field, Figure, Pair, Pairs, Result, Table
from lostflops.core.units import format_ns, format_share
from lostflops.predict.graph.build import build
from lostflops.predict.graph.lines import mean_lines
from lostflops.predict.whatif import predictions
from lostflops.predict.whatif.answer import Applied, Wanted, WhatIfAnswer, answer
from lostflops.predict.whatif.baseline import Baseline, baseline
from lostflops.predict.whatif.changes import CHANGES
from lostflops.predict.whatif.interval import ONE_STEP
from lostflops.predict.whatif.peak_memory import Recalled, predict_memory
from lostflops.predict.whatif.peak_memory import collect_memory_notes as recalled_notes

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress
    from lostflops.predict.whatif.baseline import Build
    from lostflops.predict.whatif.change import Change
    from lostflops.predict.whatif.run_facts import LearnTimes
    from lostflops.store.run import Run


def whatif(
    run: Run,
    changes: Sequence[Wanted],
    times: LearnTimes | None = None,
    *,
    keep: bool = True,
    progress: Progress | None = None,
    build: Build = build,
    known: Sequence[Change] = CHANGES,
) -> Result:
    """Predict the step with these changes. `times` turns the times of the run's own collectives into times of any
    collective. The answer is stored in the run as a prediction, unless `keep` is false or the run cannot be written
    to."""
    found = answer(baseline(run, times, progress=progress, build=build), changes, known)
    prediction = predictions.make_prediction(run, found)
    memory = _try_predict_memory(found)
    notes = [*_notes(found), *recalled_notes(memory)]
    kept = None
    if keep:
        try:
            predictions.keep(prediction)
            kept = prediction.id
            if run.address != str(run.path):
                notes.append(f"The prediction is stored on this machine only, next to the copy of the run: {run.path}.")
        except OSError as error:
            notes.append(f"The prediction could not be stored, so it cannot be scored: {run.path}: {error.strerror}.")
    return Result(
        name="whatif",
        version=2,
        title="What if",
        verdict=_verdict(found) + ("" if isinstance(memory, str) else f" {memory.verdict}"),
        blocks=tabulate_answer(found),
        notes=tuple(notes),
        more=(
            Figure("predicted_ns", prediction.predicted_ns),
            Figure("interval", prediction.interval),
            Figure("saving", asdict(found.saving)),
            _doubts(found),
            Figure("prediction_id", kept),
            Figure("memory", None if isinstance(memory, str) else memory.to_json()),
            Figure("memory_unknown", memory if isinstance(memory, str) else None),
        ),
    )


def _try_predict_memory(found: WhatIfAnswer) -> Recalled | str:
    """Return the predicted memory, or the reason why it is unknown."""
    try:
        return predict_memory(found.baseline.facts, found.applied)
    except NotApplicable as error:
        return str(error)


def tabulate_answer(found: WhatIfAnswer) -> tuple[Table, Table, Pairs]:
    """Return tables of the changes, of the ledger lines that they move, and of the baseline."""
    return _changes(found), _lines(found), baseline_pairs(found.baseline)


def _verdict(found: WhatIfAnswer) -> str:
    guess = describe_mismatch(found.baseline)
    steps = f"from {format_ns(round(found.baseline.measured))} to {format_ns(round(found.predicted))}"
    if found.work > 1:
        steps += f" for the work of {found.work} recorded steps"
    return f"{guess}{found.text} {found.saving.effect()}: {steps}."


def describe_mismatch(start: Baseline) -> str:
    """Return a sentence before a verdict if the replay hardly reproduces the run; otherwise nothing."""
    return (
        f"Uncertain: the replay differs from the run by {format_share(abs(start.error))}. "
        if start.is_uncertain
        else ""
    )


def describe_gain(gain: float) -> str:
    """Describe a gain in words, for use before the measured time.

    >>> describe_gain(0.25), describe_gain(-0.1), describe_gain(0.0)
    ('25.0% less than', '10.0% more than', 'the same as')
    """
    if not gain:
        return "the same as"
    return f"{format_share(abs(gain))} {'less' if gain > 0 else 'more'} than"


def _changes(found: WhatIfAnswer) -> Table:
    fields = (
        Field("name", label="change"),
        Field("value"),
        Field("how", label="how to apply it"),
        Field("cost", label="cost and risk"),
        Field("moved_ns", "ns", shown=False),
        Field("doubt", "share", shown=False),
    )
    rows = tuple(
        (
            one.change.name,
            one.value,
            one.change.how(one.value),
            one.change.cost_of(one.value),
            round(one.moved),
            one.edited.doubt,
        )
        for one in found.applied
    )
    more = tuple({"notes": list(one.edited.notes), "extra": dict(one.edited.extra)} for one in found.applied)
    return Table("changes", "Changes, in the order applied", fields, rows, more=more)


def _lines(found: WhatIfAnswer) -> Table:
    """Tabulate the ledger lines, largest change first; their sums are the mean step before and after."""
    level = found.baseline.level
    before, after = mean_lines(found.baseline.schedule), mean_lines(found.schedule)
    rows = []
    for name in dict.fromkeys((*before, *after)):
        old, new = (round(told.get(name, 0.0) * level) for told in (before, after))
        if old or new:
            rows.append((name, old, new, new - old))
    rows.sort(key=lambda row: -abs(row[3]))
    moving = sum(row[3] != 0 for row in rows)
    fields = (
        Field("name", label="line"),
        Field("before_ns", "ns", "before"),
        Field("after_ns", "ns", "after"),
        Field("delta", "ns", "change"),
    )
    title = "Ledger lines that change, replayed, per step and rank" if moving else "No ledger line changes"
    return Table("lines", title, fields, tuple(rows), most_shown=max(moving, 1))


def baseline_pairs(start: Baseline) -> Pairs:
    items = (
        Pair("measured_ns", round(start.measured), "ns", "measured step"),
        Pair("profiled_ns", round(start.profiled), "ns", "profiled step", start.normal is not None),
        Pair("replayed_ns", round(start.replayed), "ns", "replayed"),
        Pair("replay_error", start.error, "share", "replay error"),
        Pair("steps", len(set(start.graph.steps.number.tolist())), "count"),
        Pair("ranks", len(start.graph.ranks), "count"),
    )
    return Pairs("baseline", "The run, replayed without changes", items)


def _doubts(found: WhatIfAnswer) -> Pairs:
    named = ("replay", "changes", "steps", "runs")
    return Pairs("doubts", "", tuple(Pair(f"{name}_ns", round(getattr(found.doubts, name)), "ns") for name in named))


def _notes(found: WhatIfAnswer) -> Iterator[str]:
    start = found.baseline
    yield ("Prediction = measured mean step x (replay with the changes / replay without).")
    for one in found.applied:
        yield from _collect_change_notes(one)
    yield from notes_of_run(start)


def notes_of_run(start: Baseline) -> Iterator[str]:
    if start.recorded == 1:
        yield (
            f"Only one step was recorded, so the variation between steps is unknown: {format_share(ONE_STEP)} is "
            "assumed. Record several."
        )
    yield from start.graph.notes


def _collect_change_notes(one: Applied) -> Iterator[str]:
    yield from (f"{one.text}: {note}" for note in one.edited.notes)
