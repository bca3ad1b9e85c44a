"""Steps and their phases, from what hooks see on the training thread. Imports no torch and reads no clock.

Phases are data, forward, backward and optimizer; time in no phase is outside. Of nested phases the outermost counts,
but passes inside an optimizer's step, which are those of its closure, count as passes. The forward phase lasts from a
module's call until the backward pass begins, so that it includes the loss. It ends when the call returns if something
else follows, such as an evaluation, and in pipelines, whose stages wait for each other there.

A step ends with an optimizer's step. With several optimizers it ends with the one that stepped last before the first
stepped again; that is known after one round, whose end is reported afterwards. If optimizers step only inside the
backward pass, it ends with that pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

DATA, FORWARD, BACKWARD, OPTIMIZER = range(4)
_MOST_OPTIMIZERS: Final = 100
"""Limit of optimizers in one step: a program that makes new ones all the time would never complete a round."""
PHASES: Final = ("data", "forward", "backward", "optimizer")


@dataclass(slots=True, kw_only=True)
class ClockedStep:
    """A step as far as it is known; times in ns of the monotonic clock."""

    number: int = 0
    start: int = -1
    stop: int = -1
    phases: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    microbatches: int = 0
    samples: int | None = None
    tokens: int | None = None
    own: int = 0
    skipped: bool = False
    batches: int = 0
    comm_hook: int | None = None
    """Time inside communication hooks of DDP; None if none ran."""
    optimizers: tuple[int, ...] = ()
    """Identities of those that stepped in it, outside of a backward pass."""
    is_evaluated: bool = False
    """Whether it had a forward pass without gradients, which no backward pass follows."""

    @property
    def is_counted(self) -> bool:
        """Whether `samples` are those that the step trained with; one batch may be loaded ahead."""
        return not self.is_evaluated or self.batches <= self.microbatches + 1

    def copy(self) -> ClockedStep:
        copied = ClockedStep(number=self.number, start=self.start, stop=self.stop, phases=list(self.phases))
        copied.microbatches, copied.samples, copied.tokens = self.microbatches, self.samples, self.tokens
        copied.own, copied.skipped, copied.comm_hook = self.own, self.skipped, self.comm_hook
        copied.batches, copied.is_evaluated = self.batches, self.is_evaluated
        return copied


class Watcher(Protocol):
    """An object that is called when phases and steps begin; phase -1 is no phase."""

    def phase(self, phase: int) -> None: ...

    def step(self, number: int) -> None: ...


class StepClock:
    """A clock of steps and their phases; `on_step` gets every finished step, on the thread that ended it."""

    def __init__(self, on_step: Callable[[ClockedStep], None]) -> None:
        self._on_step = on_step
        self.step = ClockedStep()
        self.is_explicit = False
        """The program ends its steps itself; optimizers no longer do."""
        self.watchers: list[Watcher] = []
        self.loss_is_forward = True
        """Whether time between a module's call and the backward pass is the loss; in a pipeline it is a wait."""
        self._nested: list[int] = []
        self._phase = -1
        self._entered = 0
        self._forward_left = -1
        self._stepped: list[int] = []
        self._closing: int | None = None
        self._tentative: ClockedStep | None = None
        self._is_updated_inside = False

    @property
    def is_between(self) -> bool:
        """Whether no phase is open."""
        return not self._nested

    @property
    def is_after_forward(self) -> bool:
        """Whether a module's call has ended, and nothing has begun since."""
        return self._forward_left >= 0

    def enter(self, phase: int, now: int) -> None:
        self._nested.append(phase)
        if self._phase in (-1, OPTIMIZER) and phase != self._phase:
            self._turn_to(phase, now)

    def leave(self, now: int) -> None:
        if not self._nested:
            return
        self._nested.pop()
        left = self._phase
        following = next((phase for phase in self._nested if phase != OPTIMIZER), OPTIMIZER if self._nested else -1)
        if following != left:
            self._turn_to(following, now)
        if left == BACKWARD != following and self._is_updated_inside:
            self._is_updated_inside = False
            if not (self._nested or self._stepped or self.is_explicit) and self._closing is None:
                self.end(now)

    def _turn_to(self, phase: int, now: int) -> None:
        left, self._phase = self._phase, phase
        if self.step.start < 0:
            self.step.start = now
        if left >= 0:
            self.step.phases[left] += now - self._entered
        if left == BACKWARD:
            self.step.microbatches += 1
        if phase == BACKWARD and self._forward_left >= 0 and self.loss_is_forward:
            self.step.phases[FORWARD] += now - self._forward_left
        self._forward_left = now if left == FORWARD and phase == -1 else -1
        self._entered = now
        for watcher in self.watchers:
            watcher.phase(phase)

    def batch(self, samples: int | None, tokens: int | None) -> None:
        self.step.batches += 1
        if samples is not None:
            self.step.samples = (self.step.samples or 0) + samples
        if tokens is not None:
            self.step.tokens = (self.step.tokens or 0) + tokens

    def optimizer_begins(self, optimizer: int, now: int) -> None:
        """Enter the optimizer phase; if an outermost optimizer begins a new round, first end the last round's step."""
        is_round = optimizer in self._stepped or len(self._stepped) >= _MOST_OPTIMIZERS
        if not self._nested and not self.is_explicit and is_round:
            self._close_afterwards()
        self.enter(OPTIMIZER, now)

    def updated_elsewhere(self) -> None:
        """Note that an optimizer stepped on another thread; it counts only while this thread is in a backward pass."""
        if self._phase == BACKWARD:
            self._is_updated_inside = True

    def optimizer_ended(self, optimizer: int, now: int, *, skipped: bool = False) -> None:
        self.leave(now)
        if self._nested:
            self.updated_elsewhere()
            return
        self.step.skipped = self.step.skipped or skipped
        self._stepped.append(optimizer)
        if self.is_explicit:
            return
        if optimizer == self._closing:
            self.end(now)
        else:
            self._tentative = self.step.copy()
            self._tentative.stop = now

    def end(self, now: int) -> None:
        """End the step here; the time so far of a phase that is still open belongs to it."""
        if self._nested:
            self.step.phases[self._phase] += now - self._entered
            self._entered = now
        self._finish(self.step, now, ClockedStep(number=self.step.number + 1, start=now))
        self._forward_left = -1

    def finish(self) -> None:
        """End the first round of optimizers, which no second one follows."""
        if self._tentative is not None and self._closing is None and not self.is_explicit:
            self._close_afterwards()

    def _close_afterwards(self) -> None:
        """End the step with its last optimizer, as its round is over; what came since belongs to the next step."""
        ended = self._tentative
        assert ended is not None
        following = self.step
        following.number, following.start = ended.number + 1, ended.stop
        following.phases = [now - then for now, then in zip(following.phases, ended.phases, strict=True)]
        following.microbatches -= ended.microbatches
        following.batches -= ended.batches
        following.samples = _difference(following.samples, ended.samples)
        following.tokens = _difference(following.tokens, ended.tokens)
        following.comm_hook = _difference(following.comm_hook, ended.comm_hook)
        following.own -= ended.own
        following.skipped = False
        self._closing = self._stepped[-1]
        self._finish(ended, ended.stop, following)

    def _finish(self, ended: ClockedStep, now: int, following: ClockedStep) -> None:
        ended.stop, ended.optimizers = now, tuple(self._stepped)
        self.step = following
        self._stepped.clear()
        self._tentative = None
        for watcher in self.watchers:
            watcher.step(following.number)
        self._on_step(ended)


def _difference(now: int | None, then: int | None) -> int | None:
    return None if now is None or now == (then or 0) else now - (then or 0)
