"""Which change would gain most? All changes with values that need no decision by the user, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lostflops.core.errors import NotApplicable, UnknownCost, UsageError
from lostflops.core.results import Field, Result, Table, Value
from lostflops.core.units import format_ns, pluralise
from lostflops.predict.graph.longest import expect_replays
from lostflops.predict.whatif.answer import WhatIfAnswer, answer, edit
from lostflops.predict.whatif.changes import CHANGES
from lostflops.predict.whatif.peak_memory import predict_memory
from lostflops.predict.whatif.whatif import baseline_pairs, describe_mismatch, notes_of_run

if TYPE_CHECKING:
    from lostflops.core.estimate import Estimate
    from lostflops.predict.whatif.baseline import Baseline
    from lostflops.predict.whatif.change import Change


@dataclass(frozen=True, slots=True)
class _Tried:
    """An answer without its graph: there are many answers, and graphs are large."""

    text: str
    name: str
    saving: Estimate
    step: tuple[int, int, int]
    work: int
    """Number of recorded steps whose work one step does."""
    is_bound: bool
    is_hardware: bool
    cost: str
    how: str
    notes: tuple[str, ...]
    extra: Mapping[str, Any]
    peak: int | None
    """Peak memory in bytes; None if unknown."""

    @classmethod
    def of(cls, found: WhatIfAnswer) -> _Tried:
        (one,) = found.applied
        step = round(found.predicted), round(found.low), round(found.high)
        kind = one.change.is_bound, one.change.is_hardware
        told = found.text, one.change.name, found.saving, step, found.work, *kind
        cost, how = one.change.cost_of(one.value), one.change.how(one.value)
        return cls(*told, cost, how, one.edited.notes, one.edited.extra, _peak(found))

    @property
    def each(self) -> int:
        """Predicted time for the work of one recorded step, in ns."""
        return round(self.step[0] / self.work)

    @property
    def json_values(self) -> tuple[Value, ...]:
        """Values of the columns that only JSON output has."""
        return self.work, self.is_bound, self.cost, self.how

    @property
    def is_setting(self) -> bool:
        """Whether it can be set and the job stays the same: not an upper limit, nothing to buy, and no other batch
        size."""
        return not self.is_bound and not self.is_hardware and self.work == 1


def _peak(found: WhatIfAnswer) -> int | None:
    try:
        return predict_memory(found.baseline.facts, found.applied).after.peak_bytes
    except NotApplicable:
        return None


def ranking(
    start: Baseline, known: Sequence[Change] = CHANGES, *, progress: Callable[[int, int], None] | None = None
) -> tuple[Result, str]:
    """Try every value of every change, each alone, and return them with the largest gain first and hardware separately;
    and the change to ask for next, if any. Nothing is stored as a prediction, because the user has not decided on any
    change yet."""
    asked = [(change, value) for change in known for value in change.tried]
    expect_replays(len(start.schedule.graph.tasks) * len(asked))
    found: list[_Tried] = []
    refused: list[tuple[str, str, str]] = []
    for done, (change, value) in enumerate(asked):
        if progress is not None:
            progress(done, len(asked))
        try:
            found.append(_Tried.of(answer(start, [(change.name, value)], known)))
        except (UsageError, UnknownCost) as error:
            refused.append((change.name, value, _reason(error)))
    found.sort(key=lambda one: (one.is_hardware, not one.saving.is_gain, -one.saving.value))
    bought = [one for one in found if one.is_hardware]
    hardware = _gains("hardware", "Hardware changes, by saving", bought)
    result = Result(
        name="whatif_all",
        version=2,
        title="What if: each change on its own",
        verdict=_verdict(start, found),
        blocks=(
            _gains("changes", "Changes to the job, by saving", found[: len(found) - len(bought)]),
            *([hardware] if bought else []),
            _tabulate_refusals(refused, {one.name for one in found}),
            baseline_pairs(start),
        ),
        notes=(*_notes(found), *notes_of_run(start)),
        more=() if bought else (hardware,),
    )
    return result, next((one.text for one in found if one.is_setting and one.saving.value > 0), "")


def _verdict(start: Baseline, found: Sequence[_Tried]) -> str:
    guess = describe_mismatch(start)
    settings = [one for one in found if one.is_setting]
    clear = [one for one in settings if one.saving.is_gain]
    if not clear:
        return f"{guess}None of {pluralise(len(settings), 'setting')} clearly shortens the step."
    best = clear[0]
    above = "" if found[0].is_setting else "Apart from upper limits and larger batches, "
    return (
        f"{guess}{above}{best.text} saves the most: {best.saving.text()}, from {format_ns(round(start.measured))} to "
        f"{format_ns(best.step[0])}."
    )


def _notes(found: Sequence[_Tried]) -> Iterator[str]:
    yield "Savings do not add up. To combine changes, give --change several times."
    yield "--list shows the cost and risk of each change, --change how to apply it."
    for one in found:
        if one.is_bound:
            yield f"{one.text} is an upper limit, not a setting."
        if one.work > 1:
            yield (
                f"{one.text}: one step has the batches of {one.work} recorded steps and takes "
                f"{format_ns(one.step[0])}; the table shows the time per recorded step."
            )


def _gains(name: str, title: str, found: Sequence[_Tried]) -> Table:
    fields = (
        Field("change"),
        Field("effect"),
        Field("predicted_ns", "ns", shown=False),
        Field("per_step_ns", "ns", "step"),
        Field("peak_bytes", "bytes", "peak memory", shown=any(one.peak is not None for one in found)),
        Field("low_ns", "ns", shown=False),
        Field("high_ns", "ns", shown=False),
        Field("work", shown=False),
        Field("bound", shown=False),
        Field("cost", shown=False),
        Field("how", shown=False),
    )
    rows = tuple(
        (
            one.text,
            one.saving.effect(""),
            one.step[0],
            one.each,
            one.peak,
            *one.step[1:],
            *one.json_values,
        )
        for one in found
    )
    more = tuple({"saving": asdict(one.saving), "notes": list(one.notes), "extra": dict(one.extra)} for one in found)
    return Table(name, title, fields, rows, more=more)


def _tabulate_refusals(rows: Sequence[tuple[str, str, str]], answered: Container[str]) -> Table:
    """Group changes by the reason why they do not apply; show the value if another value of the change applies, or has
    another reason."""
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for name, value, reason in rows:
        by_reason.setdefault(reason, []).append((name, value))
    reasons = Counter(name for own in by_reason.values() for name in {name for name, _ in own})
    shown: list[tuple[Value, ...]] = []
    for reason, own in by_reason.items():
        names = (f"{name}={value}" if name in answered or reasons[name] > 1 else name for name, value in own)
        shown.append((", ".join(dict.fromkeys(names)), reason))
    more = tuple({"changes": [{"name": name, "value": value} for name, value in own]} for own in by_reason.values())
    fields = (Field("change"), Field("reason"))
    return Table("not_applicable", "Changes that do not apply to this run", fields, tuple(shown), more=more)


def _reason(error: Exception) -> str:
    return str(error.__cause__ or error)


def listing(start: Baseline | None, reason: str = "", known: Sequence[Change] = CHANGES) -> Result:
    """List all changes, and whether each applies to the run; without a baseline, `reason` says why none does."""
    fields = (
        Field("form", label="change"),
        Field("about", label="effect"),
        Field("cost", label="cost and risk"),
        Field("here", label="applies here"),
        Field("name", shown=False),
        Field("tried", shown=False),
        Field("applies", shown=False),
    )
    rows = tuple(_make_change_row(change, *_applies(start, change)) for change in known)
    verdict = (
        f"None of {pluralise(len(known), 'change')} applies to this run: {reason}."
        if start is None
        else f"{pluralise(len(known), 'change')} available; {sum(row[-1] is True for row in rows)} known to apply here."
    )
    return Result("whatif_list", "Changes", verdict, (Table("changes", "", fields, rows),))


def _make_change_row(change: Change, applies: bool | None, here: str) -> tuple[Value, ...]:
    return change.form, change.about, change.cost, here, change.name, ", ".join(change.tried), applies


def _applies(start: Baseline | None, change: Change) -> tuple[bool | None, str]:
    """Return whether any value that is tried can be applied, None if only the user knows a value; and the answer as
    text, with the reason if it is no."""
    if start is None:
        return False, "no"
    if not change.tried:
        return None, "depends on the value"
    why = ""
    for value in change.tried:
        try:
            edit(start.graph, start.facts, change, value)
        except (UsageError, UnknownCost) as error:
            why = _reason(error)
        else:
            return True, "yes"
    return False, f"no: {why}"
