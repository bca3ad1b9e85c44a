"""How long would a step take with other settings? The run is replayed with each change over a range of values.

All start from one replay of the unchanged run. A page has one change at a time; `lostflops serve` replays several
together, and so does `lostflops whatif` with several --change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lostflops.account.ledger.few_steps import events_replayed
from lostflops.core.pictures import Knob, Knobs, Setting
from lostflops.core.results import Field, Result, Table
from lostflops.core.units import format_ns, format_share, pluralise
from lostflops.explain.advise.diagnose import diagnosis_of
from lostflops.predict.graph.longest import expect_replays
from lostflops.predict.whatif.baseline import Baseline, baseline
from lostflops.predict.whatif.changes import CHANGES
from lostflops.predict.whatif.whatif import describe_gain, describe_mismatch, notes_of_run
from lostflops.show.pages.knob_positions import try_changes
from lostflops.show.pages.scales import Scale, scales

if TYPE_CHECKING:
    from lostflops.predict.whatif.change import Change
    from lostflops.store.run import Run

NAME, TITLE = "knobs", "What if"
LARGE: Final = (
    "Nothing was tried, because the run is too large to replay for a page. Use lostflops whatif to try one change at a "
    "time."
)
AFFORDED: Final = 6_000_000
"""At most this many tasks are replayed for a page, all positions together: some ten seconds."""
MOST_REPLAYED: Final = 350_000
"""Events of a run above which not even one position of each knob is afforded."""
_OTHER_JOBS: Final = ("world_size",)
"""Changes that make another job: each rank does the same work, so fewer ranks have shorter steps and train on less in
each."""
_HARDWARE: Final = frozenset(change.name for change in CHANGES if change.is_hardware)
"""Changes that are bought, not set."""


def knobs(run: Run) -> Result:
    if events_replayed(run) > MOST_REPLAYED:
        return Result(NAME, TITLE, LARGE)
    return turn_knobs(baseline(run), advised=_advised_changes(run))


def _advised_changes(run: Run) -> list[tuple[str, str]]:
    """Return the changes that findings predict, so that a page can show them as knobs."""
    texts = [one.prediction.change for one in diagnosis_of(run).findings if one.prediction is not None]
    pairs = [text.partition("=") for text in texts if text.count("=") == 1]
    return [(name, value) for name, _, value in pairs]


def turn_knobs(
    start: Baseline,
    known: Sequence[Change] = CHANGES,
    afforded: int = AFFORDED,
    advised: Sequence[tuple[str, str]] = (),
) -> Result:
    """Try each knob that applies, alone."""
    now = try_changes(start, ())
    assert now.predicted_ns is not None, "the measured step has no time"
    all_scales = tuple(scales(start, known, advised))
    expect_replays(len(start.schedule.graph.tasks) * sum(len(scale.values) for scale in all_scales))
    found = [_Turned.first(start, scale, now, known) for scale in all_scales]
    applies = [one for one in found if one.is_told]
    _fill(start, applies, known, afforded)
    measured = now.predicted_ns
    block = Knobs(
        "knobs", "Change one thing and see the step time", measured, now.lines, tuple(_sort_knobs(applies, measured))
    )
    refused = _build_refused_table([one for one in found if not one.is_told])
    blocks = (block, refused) if refused.rows else (block,)
    bounds = [change.name for change in known if change.is_bound]
    return Result(NAME, TITLE, _verdict(start, block, bounds), blocks, tuple(_notes(start, applies)))


@dataclass(slots=True)
class _Turned:
    """A knob with what was found so far for each place of its scale."""

    scale: Scale
    found: dict[int, Setting]

    @classmethod
    def first(cls, start: Baseline, scale: Scale, now: Setting, known: Sequence[Change]) -> _Turned:
        """Try values from the recorded one outward, up to the first that can be predicted: if none can, that is found
        at little cost."""
        made = cls(scale, {scale.now: replace(now, value=scale.values[scale.now])})
        for place in scale.outward:
            if made.turn(start, place, known).predicted_ns is not None:
                break
        return made

    def turn(self, start: Baseline, place: int, known: Sequence[Change]) -> Setting:
        self.found[place] = try_changes(start, [(self.scale.change.name, self.scale.values[place])], known)
        return self.found[place]

    @property
    def others(self) -> list[Setting]:
        return [one for place, one in self.found.items() if place != self.scale.now]

    @property
    def is_told(self) -> bool:
        return any(one.predicted_ns is not None for one in self.others)

    @property
    def missing(self) -> list[int]:
        return [place for place in self.scale.outward if place not in self.found]

    @property
    def knob(self) -> Knob:
        change, places = self.scale.change, sorted(self.found)
        settings = tuple(self.found[place] for place in places)
        about = change.about + ("; this is an upper limit, not a setting" if change.is_bound else "")
        now = places.index(self.scale.now)
        return Knob(change.name, self.scale.label, settings, now, about, change.cost, change.is_bound)


def _fill(start: Baseline, applies: Sequence[_Turned], known: Sequence[Change], afforded: int) -> None:
    """Try the other positions, as many of each knob as the graph's size allows; the ends first, because values between
    them can be guessed."""
    left = afforded // max(len(start.graph.tasks), 1) - len(applies)
    share = left / max(sum(len(one.missing) for one in applies), 1)
    for one in applies:
        for place in _pick_spread_places(one.missing, max(int(len(one.missing) * share), 1)):
            one.turn(start, place, known)


def _pick_spread_places(places: Sequence[int], most: int) -> list[int]:
    """Return at most `most` of these places, which are in the order away from the recorded one; if only one, the
    farthest.

    >>> order = [3, 1, 4, 0, 5, 6]
    >>> _pick_spread_places(order, 3), _pick_spread_places(order, 1), _pick_spread_places([2, 1], 3)
    ([0, 3, 6], [6], [1, 2])
    """
    told = sorted(places)
    if len(told) <= most:
        return told
    return [told[round(at * (len(told) - 1) / (most - 1))] for at in range(most)] if most > 1 else [places[-1]]


def _gain(one: Setting, measured: int) -> float:
    """Return the share of time that a setting saves, for the same work."""
    return 0.0 if one.predicted_ns is None else 1 - one.predicted_ns / (measured * one.work)


def _sort_knobs(applies: Sequence[_Turned], measured: int) -> Iterator[Knob]:
    """Yield gradual knobs in their own order, then switches, those with the largest effect first."""
    gradual = [one for one in applies if one.scale.is_gradual]
    switches = [one for one in applies if not one.scale.is_gradual]
    switches.sort(key=lambda one: -max(abs(_gain(setting, measured)) for setting in one.others))
    yield from (one.knob for one in (*gradual, *switches))


def _verdict(start: Baseline, block: Knobs, bounds: Sequence[str]) -> str:
    if not block.items:
        return "No change applies to this run: the table says why."
    guess = describe_mismatch(start)
    # Another batch or number of ranks trains differently, and a bound can be set nowhere: none is to be recommended.
    shorter = [
        (_gain(one, block.measured_ns), knob, one)
        for knob in block.items
        for one in knob.settings
        if one.high_ns is not None and one.high_ns < block.measured_ns * one.work
    ]
    settings = [
        (gain, knob, one) for gain, knob, one in shorter if knob.change not in (*bounds, *_OTHER_JOBS) and one.work == 1
    ]
    settings.sort(key=lambda item: -item[0])
    best = next((item for item in settings if item[1].change not in _HARDWARE), None)
    bought = next((item for item in settings if item[1].change in _HARDWARE), None)
    own = pluralise(len(block.items), "change")
    if best is None:
        none = f"{guess}None of {own} shortens the step by more than chance"
        return f"{none}, except other hardware: {_describe_setting(bought, block)}." if bought else f"{none}."
    if bought is None or bought[0] <= best[0]:
        beside = " (upper limits and other batches aside)" if max(gain for gain, *_ in shorter) > best[0] else ""
        return f"{guess}The best of {own}, each tried alone{beside}: {_describe_setting(best, block)}."
    settings_first = f"{guess}The best setting among {own}, each tried alone"
    own, other = (_describe_setting(one, block) for one in (best, bought))
    return f"{settings_first}: {own}. Other hardware would save more: {other}."


def _describe_setting(turn: tuple[float, Knob, Setting], block: Knobs) -> str:
    gain, knob, one = turn
    assert one.predicted_ns is not None
    step, measured = format_ns(one.predicted_ns), format_ns(block.measured_ns)
    return f"with {knob.change}={one.value} a step takes {step}, {describe_gain(gain)} the {measured} measured"


def _build_refused_table(found: Sequence[_Turned]) -> Table:
    by_reason: dict[str, list[str]] = {}
    for one in found:
        nearest, name = one.found[one.scale.outward[0]], one.scale.change.name
        is_one_reason = len({setting.why_not for setting in one.others}) == 1
        by_reason.setdefault(nearest.why_not, []).append(name if is_one_reason else f"{name}={nearest.value}")
    rows = tuple((", ".join(names), reason) for reason, names in by_reason.items())
    return Table("not_applicable", "Changes that do not apply, and why", (Field("change"), Field("reason")), rows)


def _notes(start: Baseline, applies: Sequence[_Turned]) -> Iterator[str]:
    yield (
        "The measured step is split into lines like the replay, so that both can be compared; the replay differs from "
        f"the measured step by {format_share(abs(start.error))}."
    )
    if any(one.missing for one in applies):
        yield "The run is large, so fewer values were tried: use lostflops whatif for other values."
    yield from notes_of_run(start)
