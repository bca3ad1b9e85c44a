"""Effect of changes on the mean step: applied one after the other, each to the graph that the previous one left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import hypot, prod, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.core.errors import NotApplicable, UsageError
from lostflops.core.estimate import Estimate, Kind
from lostflops.predict.graph.replay import Circular, Schedule, replay
from lostflops.predict.whatif.change import Change, Edited
from lostflops.predict.whatif.changes import CHANGES
from lostflops.predict.whatif.interval import Doubts, doubts

if TYPE_CHECKING:
    import numpy.typing as npt

    from lostflops.predict.graph.tasks import TaskGraph
    from lostflops.predict.whatif.baseline import Baseline
    from lostflops.predict.whatif.change import Facts

Wanted = tuple[str, str]
"""Name and value of a change."""
_FEWEST: Final = 3
"""With fewer steps than this, the spread of their savings is unknown."""
_QUANTILE: Final = 1.6449
"""95% quantile of the normal distribution. Not Student's t: a saving is between zero and the whole step,
so a few steps have no long tails."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A change and its effect."""

    change: Change
    value: str
    edited: Edited
    moved: float
    """Change of the mean step, in ns."""

    @property
    def text(self) -> str:
        return f"{self.change.name}={self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """The predicted step with some changes. Times are at the measured level: the measured step times the ratio of the
    two replays."""

    baseline: Baseline
    applied: tuple[Applied, ...]
    schedule: Schedule
    predicted: float
    doubts: Doubts

    spread: float
    """Half the width of the range of the mean saving, in ns, from how savings differ between steps."""

    @property
    def gain(self) -> float:
        """Part of the measured step that is saved; negative if a step takes longer."""
        return 1 - self.predicted / self.baseline.measured

    @property
    def low(self) -> float:
        """Shortest mean step expected of a later run."""
        return max(self.predicted - self.doubts.together, 0.0)

    @property
    def high(self) -> float:
        return self.predicted + self.doubts.together

    @property
    def saving(self) -> Estimate:
        """Part of the step that is saved for the same work. Steps are replayed with and without the change, so the
        usual variation between steps is not part of the range: only how much the saving itself varies. The limit of a
        bound that may itself be zero is no limit, so its range is kept."""
        whole, source = self.baseline.measured * self.work, f"replaying the run with {self.text}"
        value = 1 - self.predicted / whole
        reach = hypot(self.doubts.replay, self.doubts.changes, self.doubts.runs, self.spread) / whole
        saving = Estimate(value, value - reach, min(value + reach, 1.0), Kind.REPLAYED, source)
        return Estimate.bound(value, source) if self.is_bound and saving.is_gain else saving

    @property
    def text(self) -> str:
        return ", ".join(one.text for one in self.applied)

    @property
    def is_bound(self) -> bool:
        """Whether the saving is an upper limit, which no setting reaches."""
        return any(one.change.is_bound for one in self.applied)

    @property
    def work(self) -> int:
        """Number of recorded steps whose work one step does."""
        return prod(one.edited.extra.get("microbatches", 1) for one in self.applied)


def answer(start: Baseline, wanted: Sequence[Wanted], known: Sequence[Change] = CHANGES) -> WhatIfAnswer:
    """Apply the changes one after the other and predict the step. Raise `NotApplicable` with the reason, and
    `UsageError` for names and values that cannot be read."""
    chosen = [(find_change(name, known), value) for name, value in wanted]
    _check_once(chosen)
    schedule, facts, applied = start.schedule, start.facts, []
    for change, value in chosen:
        edited = edit(schedule.graph, facts, change, value)
        facts = edited.facts or facts
        after = _replay_edited(edited, change, value)
        applied.append(Applied(change, value, edited, (after.mean_step - schedule.mean_step) * start.level))
        schedule = after
    predicted = start.measured * (schedule.mean_step / start.replayed)
    moved = [(one.moved, one.edited.doubt) for one in applied]
    moved += [(one.edited.off * start.level, 1.0) for one in applied]
    moved += [(predicted - start.measured, start.unlike)]
    found = doubts(predicted, replay_error=start.error, moved=moved, noise=start.noise, between=start.between)
    return WhatIfAnswer(
        baseline=start,
        applied=tuple(applied),
        schedule=schedule,
        predicted=predicted,
        doubts=found,
        spread=_estimate_spread(start, schedule, applied),
    )


def _estimate_spread(start: Baseline, after: Schedule, applied: Sequence[Applied]) -> float:
    """Return half the width of the range of the mean saving, from step to step; unpaired if the number of steps
    has changed. If steps mix, the saving varies as steps do, in proportion."""
    if any(one.edited.mixes_steps for one in applied):
        return start.noise * abs(after.mean_step - start.schedule.mean_step) * start.level
    before, later = _by_step(start.schedule), _by_step(after)
    if before.size < _FEWEST or before.size != later.size:
        return start.noise * start.measured
    saved = (before - later) * start.level
    return float(_QUANTILE * saved.std(ddof=1) / sqrt(saved.size))


def _by_step(done: Schedule) -> npt.NDArray[np.float64]:
    """Return the mean time of each step over its ranks, in ns."""
    start, stop = done.step_edges
    _, place, count = np.unique(done.graph.steps.number, return_inverse=True, return_counts=True)
    return np.bincount(place, weights=stop - start) / count


def _check_once(chosen: Sequence[tuple[Change, str]]) -> None:
    names = [change.name for change, _ in chosen if not change.again]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{twice} is given twice: give one value")


def edit(graph: TaskGraph, facts: Facts, change: Change, value: str) -> Edited:
    """Apply the change to the graph; if it does not apply, name it in the error."""
    try:
        return change.apply(graph, value, facts)
    except NotApplicable as error:
        raise NotApplicable(f"{change.name}={value} does not apply: {error}") from error


def _replay_edited(edited: Edited, change: Change, value: str) -> Schedule:
    edited.graph.self_check()
    try:
        return edited.schedule or replay(edited.graph)
    except Circular:
        reason = "tasks would wait for each other in a cycle, so its effect on this run cannot be predicted"
        raise NotApplicable(f"{change.name}={value} does not apply: {reason}") from NotApplicable(reason)


def find_change(name: str, known: Sequence[Change] = CHANGES) -> Change:
    """Return the change of that name.

    >>> find_change("bukket", ())
    Traceback (most recent call last):
    ...
    lostflops.core.errors.UsageError: no change is called 'bukket'. lostflops whatif RUN --list shows all
    """
    by_name = {change.name: change for change in known}
    if name in by_name:
        return by_name[name]
    near = get_close_matches(name, by_name, n=3, cutoff=0.6)
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(f"no change is called {name!r}.{meant} lostflops whatif RUN --list shows all")


def parse_change(text: str) -> Wanted:
    """Split a change as the user writes it into name and value.

    >>> parse_change("network.bandwidth=2x")
    ('network.bandwidth', '2x')
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise UsageError(f"--change {text!r} is not of the form NAME=VALUE, such as bucket_mb=50")
    return name, value
