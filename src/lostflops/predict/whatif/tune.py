"""Which size of gradient buckets makes steps shortest?

The graph is replayed with each size. All sizes share one recording and one replay's error, so they compare better with
each other than with a later run; sizes that differ by less than two runs do are equally good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.errors import AlreadySo, NotApplicable, UsageError
from lostflops.core.results import Field, Pair, Pairs, Plot, Result, Series, Table
from lostflops.core.units import format_ns, format_share
from lostflops.predict.whatif.answer import WhatIfAnswer, answer, find_change
from lostflops.predict.whatif.changes import CHANGES
from lostflops.predict.whatif.graph_edits.values import number
from lostflops.predict.whatif.whatif import baseline_pairs, describe_gain, describe_mismatch

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress
    from lostflops.predict.whatif.baseline import Baseline
    from lostflops.predict.whatif.change import Change

BUCKET: Final = "bucket_mb"


@dataclass(frozen=True, slots=True)
class _Swept:
    """Answers for each bucket size, in ascending order."""

    change: Change
    sizes: tuple[str, ...]
    answers: tuple[WhatIfAnswer, ...]
    missing: tuple[tuple[str, str], ...]
    """Sizes that do not apply, with the reason."""

    @property
    def start(self) -> Baseline:
        return self.answers[0].baseline

    @property
    def best(self) -> int:
        """Index of the best size; of equally good ones the smallest, which needs the least memory."""
        predicted = [one.predicted for one in self.answers]
        return predicted.index(min(predicted))

    @property
    def as_good(self) -> tuple[int, int]:
        """Indices of the first and the last size around the best that two runs could not tell apart from it."""
        limit = self.answers[self.best].predicted * (1 + self.start.between)
        first = last = self.best
        while first > 0 and self.answers[first - 1].predicted <= limit:
            first -= 1
        while last + 1 < len(self.answers) and self.answers[last + 1].predicted <= limit:
            last += 1
        return first, last


def tune_bucket(
    start: Baseline, sizes: Sequence[str], *, known: Sequence[Change] = CHANGES, progress: Progress | None = None
) -> Result:
    """Predict the step for each bucket size. Sizes are as the user writes them, in MiB. Raise `NotApplicable` if no
    size applies."""
    if not sizes:
        raise UsageError("give bucket sizes, such as 5,25,100")
    swept = _swept(start, sorted(dict.fromkeys(sizes), key=lambda text: number(text, BUCKET)), known, progress)
    return Result(
        name="tune",
        title="Bucket size",
        verdict=_verdict(swept),
        blocks=(_best(swept), _table(swept), _plot(swept), baseline_pairs(start)),
        notes=tuple(_notes(swept)),
    )


def _swept(start: Baseline, sizes: Sequence[str], known: Sequence[Change], progress: Progress | None) -> _Swept:
    change = find_change(BUCKET, known)
    answers: dict[str, WhatIfAnswer] = {}
    missing: list[tuple[str, str]] = []
    for done, size in enumerate(sizes):
        if progress is not None:
            progress(done, len(sizes))
        try:
            answers[size] = _answer(start, size, known)
        except NotApplicable as error:
            missing.append((size, str(error).removeprefix(f"{BUCKET}={size} does not apply").lstrip(":, ")))
    if not answers:
        raise NotApplicable(f"no bucket size can be predicted: {missing[0][1]}")
    return _Swept(change, tuple(answers), tuple(answers.values()), tuple(missing))


def _answer(start: Baseline, size: str, known: Sequence[Change]) -> WhatIfAnswer:
    try:
        return answer(start, [(BUCKET, size)], known)
    except NotApplicable as error:
        if isinstance(error.__cause__, AlreadySo):
            return answer(start, [], known)
        raise


def _verdict(swept: _Swept) -> str:
    best = swept.answers[swept.best]
    of_all = f" of the {len(swept.sizes)} that can be predicted" if swept.missing else ""
    differ = swept.start.between
    if best.gain <= differ:
        return (
            f"Keep the current buckets: no size{of_all} shortens the measured step of "
            f"{format_ns(round(best.baseline.measured))} by more than {format_share(differ)}, the difference between "
            "two runs of the same job."
        )
    low, high = (format_ns(round(ns)) for ns in (best.low, best.high))
    first, last = (swept.sizes[at] for at in swept.as_good)
    others = "" if first == last else f" {first} to {last} MiB are equally good."
    guess = describe_mismatch(best.baseline)
    return (
        f"{guess}Buckets of {swept.sizes[swept.best]} MiB are best{of_all}: a step takes "
        f"{format_ns(round(best.predicted))} ({low} to {high}), {describe_gain(best.gain)} the "
        f"{format_ns(round(best.baseline.measured))} measured"
        + ("." if best.saving.is_gain else "; the effect may be zero.")
        + others
    )


def _best(swept: _Swept) -> Pairs:
    best, size = swept.answers[swept.best], swept.sizes[swept.best]
    first, last = (float(swept.sizes[at]) for at in swept.as_good)
    items = (
        Pair("bucket_mb", float(size), label="MiB"),
        Pair("predicted_ns", round(best.predicted), "ns", "step"),
        Pair("gain", best.gain, "share"),
        Pair("interval", (round(best.low), round(best.high)), "ns", "range"),
        Pair("as_good", (first, last), label="equally good, MiB"),
        Pair("how", swept.change.how(size), label="how to apply it"),
        Pair("cost", swept.change.cost, label="cost and risk"),
    )
    return Pairs("best", "Best size", items)


def _table(swept: _Swept) -> Table:
    fields = (
        Field("bucket_mb", label="MiB"),
        Field("reductions", "rate"),
        Field("predicted_ns", "ns", "step"),
        Field("low_ns", "ns", "from"),
        Field("high_ns", "ns", "to"),
        Field("gain", "share"),
        Field("as_good", label="as good as the best"),
    )
    first, last = swept.as_good
    reductions = {size: extra["reductions"] for size, extra in _extras(swept) if "reductions" in extra}
    rows = tuple(
        (
            float(size),
            reductions.get(size),
            *(round(ns) for ns in (one.predicted, one.low, one.high)),
            one.gain,
            first <= at <= last,
        )
        for at, (size, one) in enumerate(zip(swept.sizes, swept.answers, strict=True))
    )
    return Table("sizes", "By bucket size", fields, rows)


def _extras(swept: _Swept) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each size with the figures of its change; sizes that change nothing are left out."""
    for size, one in zip(swept.sizes, swept.answers, strict=True):
        yield from ((size, own.edited.extra) for own in one.applied)


def _plot(swept: _Swept) -> Plot:
    sizes = [float(size) for size in swept.sizes]
    measured = swept.start.measured
    points = tuple(zip(sizes, (one.predicted for one in swept.answers), strict=True))
    series = (
        Series("step: predicted", "marks", points),
        Series("step: interpolated", "line", points),
        Series("measured", "line", ((sizes[0], measured), (sizes[-1], measured))),
    )
    x = Field("bucket_mb", label="bucket size in MiB")
    return Plot("curve", "Step time by bucket size", x, Field("step_ns", "ns", "step"), series, log_y=False)


def _notes(swept: _Swept) -> Iterator[str]:
    differ = format_share(swept.start.between)
    yield f"Sizes within {differ} of the best count as equally good: two runs of the same job differ by that much."
    for reason in dict.fromkeys(reason for _, reason in swept.missing):
        sizes = ", ".join(size for size, own in swept.missing if own == reason)
        yield f"No prediction for {sizes} MiB: {reason}."
    before = {f"{extra['reductions_before']:.3g}" for _, extra in _extras(swept) if "reductions_before" in extra}
    yield from (f"The run makes {one} reductions per step." for one in sorted(before))
    notes = (note for one in swept.answers for own in one.applied for note in own.edited.notes)
    yield from dict.fromkeys(note for note in notes if " reductions per step become " not in note)
    yield from swept.start.graph.notes
