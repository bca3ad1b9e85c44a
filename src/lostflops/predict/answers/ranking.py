"""Which change would gain most: every one that can be tried without knowing the user's mind, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lostflops.errors import UnknownCost, UsageError
from lostflops.predict.answers.answer import Answer, answer, edit
from lostflops.predict.answers.whatif import baseline_pairs
from lostflops.predict.changes import CHANGES
from lostflops.results import Field, Result, Table, Value
from lostflops.units import counted, format_ns, format_share

if TYPE_CHECKING:
    from lostflops.predict.answers.baseline import Baseline
    from lostflops.predict.change import Change

MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class _Tried:
    """An answer without its graph: there are many, and graphs are large."""

    text: str
    gain: float
    gain_interval: tuple[float, float]
    step: tuple[int, int, int]
    is_clear: bool
    cost: str
    how: str
    notes: tuple[str, ...]
    extra: Mapping[str, Any]

    @classmethod
    def of(cls, found: Answer) -> _Tried:
        (one,) = found.applied
        step = round(found.predicted), round(found.low), round(found.high)
        told = found.text, found.gain, found.gain_interval, step, found.is_clear
        return cls(*told, one.change.cost, one.change.how(one.value), one.edited.notes, one.edited.extra)


def ranking(
    start: Baseline, known: Sequence[Change] = CHANGES, *, progress: Callable[[int, int], None] | None = None
) -> tuple[Result, str]:
    """Every value that a change is tried with, each alone; the largest gain first; and the one that gains most, if any.
    None of it is kept as a prediction: nobody decided on it yet."""
    asked = [(change, value) for change in known for value in change.tried]
    found: list[_Tried] = []
    refused: list[tuple[Value, ...]] = []
    for done, (change, value) in enumerate(asked):
        if progress is not None:
            progress(done, len(asked))
        try:
            found.append(_Tried.of(answer(start, [(change.name, value)], known)))
        except (UsageError, UnknownCost) as error:
            refused.append((change.name, value, _reason(error)))
    found.sort(key=lambda one: -one.gain)
    result = Result(
        name="whatif_all",
        title="What if: every change that can be tried, each alone",
        verdict=_verdict(start, found),
        blocks=(_gains(found), _refused(refused), baseline_pairs(start)),
        notes=tuple(_notes(found)),
    )
    return result, found[0].text if found and found[0].gain > 0 else ""


def _verdict(start: Baseline, found: Sequence[_Tried]) -> str:
    guess = "These are guesses, because the replay misses the run itself by too much. " if start.is_guess else ""
    clear = [one for one in found if one.is_clear and one.gain > 0]
    if not clear:
        return f"{guess}Of {counted(len(found), 'change')} tried none gains more than chance would."
    best = clear[0]
    low, high = best.gain_interval
    return (
        f"{guess}{best.text} gains most: a step of {format_ns(round(start.measured))} takes "
        f"{format_ns(best.step[0])}, {format_share(best.gain)} less ({format_share(low)} to "
        f"{format_share(high)}, nine times of ten); {counted(len(clear), 'change')} of {len(found)} tried "
        f"{'gains' if len(clear) == 1 else 'gain'} more than chance."
    )


def _notes(found: Sequence[_Tried]) -> Iterator[str]:
    yield "Gains of several changes do not add up: ask for them together, with several --change."
    for one in found:
        if batches := one.extra.get("microbatches"):
            each = format_ns(round(one.step[0] / batches))
            yield f"With {one.text} a step does the work of {batches} recorded ones: {each} for each."


def _gains(found: Sequence[_Tried]) -> Table:
    fields = (
        Field("change"),
        Field("gain", "share"),
        Field("gain_low", "share", "from"),
        Field("gain_high", "share", "to"),
        Field("predicted_ns", "ns", "step"),
        Field("low_ns", "ns", shown=False),
        Field("high_ns", "ns", shown=False),
        Field("cost", label="cost and risk"),
        Field("how", shown=False),
    )
    rows = tuple((one.text, one.gain, *one.gain_interval, *one.step, one.cost, one.how) for one in found)
    more = tuple({"notes": list(one.notes), "extra": dict(one.extra)} for one in found)
    return Table("changes", "By gain", fields, rows, most_shown=MOST_SHOWN, more=more)


def _refused(rows: Sequence[tuple[Value, ...]]) -> Table:
    fields = (Field("name", label="change"), Field("value", shown=False), Field("reason"))
    told = {(name, reason): (name, value, reason) for name, value, reason in reversed(rows)}
    return Table("not_applicable", "What does not apply to this run", fields, tuple(reversed(told.values())))


def _reason(error: Exception) -> str:
    return str(error.__cause__ or error)


def listing(start: Baseline | None, reason: str = "", known: Sequence[Change] = CHANGES) -> Result:
    """All changes, and whether each applies to the run; `reason` says why none does where there is no baseline."""
    fields = (
        Field("form", label="change"),
        Field("about", label="asks"),
        Field("cost", label="cost and risk"),
        Field("here", label="applies here"),
        Field("name", shown=False),
        Field("tried", shown=False),
        Field("applies", shown=False),
    )
    rows = tuple(_listed(change, *_applies(start, reason, change)) for change in known)
    verdict = f"{counted(len(known), 'change')} can be asked for; {sum(row[-1] is True for row in rows)} surely apply."
    return Result("whatif_list", "Changes", verdict, (Table("changes", "", fields, rows),))


def _listed(change: Change, applies: bool | None, here: str) -> tuple[Value, ...]:
    return change.form, change.about, change.cost, here, change.name, ", ".join(change.tried), applies


def _applies(start: Baseline | None, reason: str, change: Change) -> tuple[bool | None, str]:
    """Whether any value that it is tried with can be applied, None where only the user knows one; and why not."""
    if start is None:
        return False, f"no: {reason}"
    if not change.tried:
        return None, "give a value to see"
    why = ""
    for value in change.tried:
        try:
            edit(start.graph, start.facts, change, value)
        except (UsageError, UnknownCost) as error:
            why = _reason(error)
        else:
            return True, "yes"
    return False, f"no: {why}"
