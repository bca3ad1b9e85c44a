"""Losses without a known cause, located in the program: which of its lines take time that a step does not need.

Rules know some causes; users find others. Stack samples show which line of the program ran while time went to each line
of the ledger. What modules, backward passes and optimizers compute is no loss, unless the same module is called from a
second place: then the smaller call may be one too many. Waits, transfers and Python are losses wherever they are. What
the program computes itself outside of these passes is one from a tenth of the time on: a loss function takes less, and
without modules it is not known what a pass is. All this says where to look, and not yet what to change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from lostflops.account.facts.source_code import PROGRAM, code_of, function_of, is_framework, place_of
from lostflops.account.ledger.lines import HOST_LINES
from lostflops.account.ledger.samples import FEWEST
from lostflops.core.results import Finding
from lostflops.core.units import format_percent
from lostflops.explain.advise.diagnosis import SMALLEST, LocatedLoss
from lostflops.explain.advise.signs.where import BACKWARD, FORWARD, OPTIMIZER, enclosing_frames, inside_step, phase_at

if TYPE_CHECKING:
    from lostflops.account.ledger.total import RunLedger

_MOST: Final = 5
_OWN_COMPUTE: Final = 0.1
"""What the program computes itself counts from this part of the time on: loss functions and batches take less."""
_MOST_NAMED: Final = 3
_WORTH_NAMING: Final = 0.15
"""Lines of a function are named if they take at least this part of its time."""
_WRAPPER: Final = re.compile(r"wrapper$|^Module\._(?:wrapped_)?call_impl|decorate_context$")
"""Functions that only call what was asked for, as those of Lostflops do."""
_PASSES: Final = {FORWARD: "the forward pass", BACKWARD: "the backward pass", OPTIMIZER: "the optimizer's step"}
_OWN: Final = "own code"
_FORWARD_METHOD: Final = "forward"


class CallSite(NamedTuple):
    """A function of the program, and what it does there: a pass, or work of its own."""

    does: str
    function: str
    file: str


class _Sample(NamedTuple):
    """A stack as far as it locates a loss."""

    site: CallSite
    place: str
    """The line of the site, as `train.py:12`."""
    inside: tuple[str, ...]
    """Frames of the program below it, and that it was called from if it is no pass; the innermost first."""
    call: str
    """What it calls, of a library; empty if nothing."""


@dataclass(slots=True)
class _Located:
    """What one function of the program costs besides what a step needs."""

    site: CallSite
    lines: Counter[str] = field(default_factory=Counter)
    """Lost time by line of the ledger, in ns over all ranks."""
    places: Counter[str] = field(default_factory=Counter)
    """All time by source line of the function."""
    inside: Counter[str] = field(default_factory=Counter)
    """Lost time by frames of the program below it or around it."""
    calls: Counter[str] = field(default_factory=Counter)
    """Lost time by function of a library that was called."""

    @property
    def ns(self) -> int:
        return self.lines.total()

    @property
    def place(self) -> str:
        return self.places.most_common(1)[0][0]

    @property
    def named(self) -> tuple[str, ...]:
        """Frames that it names, as `step train.py:12`, the one to look at first."""
        most, whole = self.places.most_common(_MOST_NAMED), self.places.total()
        own = [f"{self.site.function} {place}" for place, ns in most if ns >= _WORTH_NAMING * whole]
        inside = [one for one, ns in self.inside.most_common(_MOST_NAMED) if ns >= _WORTH_NAMING * self.ns]
        return tuple(dict.fromkeys((*own, *inside)))

    def finish(self, whole: int) -> LocatedLoss:
        return LocatedLoss(
            place=self.place,
            function=self.site.function,
            does=self.site.does,
            ns=self.ns,
            share=self.ns / whole,
            lines=dict(self.lines),
            named=self.named,
            calls=tuple(call for call, _ in self.calls.most_common(_MOST_NAMED)),
            what=_describe(self, whole),
        )

    def add(self, line: str, ns: int, sample: _Sample, *, is_lost: bool) -> None:
        self.places[sample.place] += ns
        if is_lost:
            self.lines[line] += ns
            self.inside.update(dict.fromkeys(sample.inside, ns))
            if sample.call:
                self.calls[sample.call] += ns


def locate(total: RunLedger) -> tuple[LocatedLoss, ...]:
    """Return the places that lose most, the largest first; nothing without samples."""
    is_host = len(total.on_thread) == len(total.ranks)  # a busy device does what the host launched earlier
    enclosing = enclosing_frames(stack for stacks in total.samples.values() for stack in stacks)
    seen = [
        (line, ns, _read(stack, enclosing))
        for line, stacks in total.sampled_ns.items()
        if total.samples[line].total() >= FEWEST and (is_host or line in HOST_LINES)
        for stack, ns in stacks.items()
    ]
    spare = _find_spare([(ns, sample) for _, ns, sample in seen])
    has_modules = any(sample.site.does == _PASSES[FORWARD] for _, _, sample in seen)
    own = Counter[CallSite]()
    for line, ns, sample in seen:
        own[sample.site] += ns if line == "compute" else 0
    found: dict[CallSite, _Located] = {}
    for line, ns, sample in seen:
        is_lost = line != "compute" or (
            (sample.site, sample.place) in spare
            if sample.site.does != _OWN
            else has_modules and own[sample.site] >= _OWN_COMPUTE * total.total_ns
        )
        found.setdefault(sample.site, _Located(sample.site)).add(line, ns, sample, is_lost=is_lost)
    large = [one for one in found.values() if one.ns >= SMALLEST * (total.total_ns or 1)]
    ordered = sorted(large, key=lambda one: -one.ns)[:_MOST]
    return tuple(one.finish(total.total_ns or 1) for one in ordered)


def _find_spare(seen: Sequence[tuple[int, _Sample]]) -> set[tuple[CallSite, str]]:
    """Return calls of a forward pass that may be one too many: another call of the same module takes more time. A
    module is known by the program's method that its call runs; those of torch alone look all the same."""
    by_module: dict[str, Counter[tuple[CallSite, str]]] = {}
    for ns, sample in seen:
        if sample.site.does == _PASSES[FORWARD] and sample.inside:
            module = sample.inside[-1].partition(" ")[0] + place_of(sample.inside[-1]).rpartition(":")[0]
            by_module.setdefault(module, Counter())[sample.site, sample.place] += ns
    return {call for calls in by_module.values() for call, _ in calls.most_common()[1:]}


def _read(stack: str, enclosing: Collection[str]) -> _Sample:
    whole = tuple(stack.split(";"))
    frames = inside_step(whole, enclosing)
    own = _own_frames(frames)
    if not own and (around := _own_frames(whole)):  # passes that one line calls: it is all there is to name
        frames = whole[around[-1] :]
        own = [0]
    own = own or [at for at, frame in enumerate(frames) if is_framework(frame)] or [len(frames) - 1]
    begins = next((at for at, frame in enumerate(frames) if phase_at(frame) is not None), len(frames))
    phase = phase_at(frames[begins]) if begins < len(frames) else None
    before, last = [at for at in own if at < begins], own[-1]
    if phase is not None and before and (last == before[-1] or _is_of_pass(frames, own, phase)):
        site, does, inside = before[-1], _PASSES[phase], [at for at in own if at > before[-1]]
    else:
        site, does, inside = last, _OWN, own[-2:-1]
    called = next((frame for frame in frames[site + 1 :] if not _is_wrapper(frame)), "")
    return _Sample(
        CallSite(does, function_of(frames[site]), place_of(frames[site]).rpartition(":")[0]),
        place_of(frames[site]),
        tuple(frames[at] for at in reversed(inside)),
        function_of(called),
    )


def _is_wrapper(frame: str) -> bool:
    return code_of(frame) == "lostflops" or _WRAPPER.search(function_of(frame)) is not None


def _own_frames(frames: Sequence[str]) -> list[int]:
    return [at for at, frame in enumerate(frames) if code_of(frame) == PROGRAM]


def _is_of_pass(frames: Sequence[str], own: Sequence[int], phase: int) -> bool:
    """Return whether the innermost function of the program is a part of the model: the last module that was called runs
    its own method, and no hook."""
    if phase != FORWARD:
        return False
    calls = [at for at, frame in enumerate(frames[: own[-1]]) if phase_at(frame) == FORWARD]
    entered = next((at for at in own if at > calls[-1]), own[-1]) if calls else own[-1]
    return function_of(frames[entered]).rpartition(".")[2] == _FORWARD_METHOD


def _describe(one: _Located, whole: int) -> str:
    """Return a located loss in a sentence.

    >>> site = CallSite("own code", "Meter.add", "train.py")
    >>> made = _Located(site)
    >>> made.add("comm.transfer", 30, _Sample(site, "train.py:41", (), "all_reduce"), is_lost=True)
    >>> _describe(made, 100)
    '30% of step time goes to Meter.add at train.py:41, calling all_reduce: comm.transfer 30%.'
    """
    lines = ", ".join(f"{line} {format_percent(ns / whole)}" for line, ns in one.lines.most_common(_MOST_NAMED))
    share = f"{format_percent(one.ns / whole)} of step time"
    if one.site.does == _OWN:
        calls = f", calling {one.calls.most_common(1)[0][0]}" if one.calls else ""
        return f"{share} goes to {one.site.function} at {one.place}{calls}: {lines}."
    places = " and ".join(place_of(frame) for frame in one.named if function_of(frame) == one.site.function)
    return f"{share} is lost in {one.site.does} called at {places or one.place} ({one.site.function}): {lines}."


def without_named(found: Sequence[LocatedLoss], findings: Sequence[Finding]) -> tuple[LocatedLoss, ...]:
    """Return the located losses that findings do not explain: none names the place and claims half of its time."""

    def explained(one: LocatedLoss) -> int:
        return sum(each.lost_ns for each in findings if any(_names(each, place_of(frame)) for frame in one.named))

    return tuple(one for one in found if explained(one) < one.ns / 2)


def _names(finding: Finding, place: str) -> bool:
    """Return whether a finding names a line; line 12 is not line 1."""
    texts = (finding.what, finding.fix, *(str(one) for one in finding.evidence))
    return any(re.search(rf"{re.escape(place)}(?!\d)", text) for text in texts)
