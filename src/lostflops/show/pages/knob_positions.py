"""Step time with some changes, as a position of a knob: the prediction, or the reason why there is none.

Predictions are not stored here: turning a knob is not yet a decision for a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lostflops.core.errors import AlreadySo, NotApplicable, UnknownCost, UsageError
from lostflops.core.pictures import Setting
from lostflops.predict.graph.lines import mean_lines
from lostflops.predict.whatif.answer import Wanted, WhatIfAnswer, answer
from lostflops.predict.whatif.changes import CHANGES
from lostflops.predict.whatif.graph_edits.values import count

if TYPE_CHECKING:
    from lostflops.predict.whatif.baseline import Baseline
    from lostflops.predict.whatif.change import Change

MOST_TIMES: Final = 64
_REPEATING: Final = ("accumulate", "microbatches")
"""Changes that repeat the graph as often as their value says, so that a large number would fill the memory."""


def try_changes(start: Baseline, changes: Sequence[Wanted], known: Sequence[Change] = CHANGES) -> Setting:
    """Predict the step with all changes together, in this order; without changes, it is the measured step."""
    value = changes[0][1] if len(changes) == 1 else ", ".join(f"{name}={value}" for name, value in changes)
    try:
        found = _answer(start, changes, known)
    except (UsageError, UnknownCost) as error:
        reason = error.__cause__ if len(changes) == 1 and error.__cause__ is not None else error
        return Setting(value, None, None, None, why_not=str(reason))
    predicted = round(found.predicted)
    return Setting(
        value,
        predicted,
        round(found.low),
        round(found.high),
        _round_to_total(mean_lines(found.schedule), predicted),
        work=found.work,
        how="\n".join(one.change.how(one.value) for one in found.applied),
        notes=tuple(dict.fromkeys(note for one in found.applied for note in one.edited.notes)),
        gain_interval=found.saving.ends,
    )


def _answer(start: Baseline, changes: Sequence[Wanted], known: Sequence[Change]) -> WhatIfAnswer:
    for name, value in changes:
        if name in _REPEATING and count(value, name) > MOST_TIMES:
            raise NotApplicable(f"{name}={value} is too large for a page, which replays at most {MOST_TIMES}")
    try:
        return answer(start, changes, known)
    except NotApplicable as error:
        if not isinstance(error.__cause__, AlreadySo):
            raise
        others = [(name, value) for name, value in changes if not str(error).startswith(f"{name}={value} does not")]
        assert len(others) < len(changes), "what cannot be applied does not name its change"
        return _answer(start, others, known)


def _round_to_total(lines: Mapping[str, float], total: int) -> tuple[tuple[str, int], ...]:
    """Scale the lines of a replay to `total` and round them to whole ns with that sum; lines with the largest
    remainders are rounded up.

    >>> _round_to_total({"compute": 2.0, "comm.wait": 1.0, "copy": 0.0}, 10)
    (('compute', 7), ('comm.wait', 3))
    """
    whole = sum(lines.values())
    exact = {name: ns * total / whole for name, ns in lines.items() if ns > 0}
    told = {name: int(ns) for name, ns in exact.items()}
    left = total - sum(told.values())
    for name in sorted(exact, key=lambda name: told[name] - exact[name])[:left]:
        told[name] += 1
    return tuple((name, ns) for name, ns in told.items() if ns)
