"""Modules whose calls are forward passes: the outermost, or those inside them if the outermost are never called.

A program may train several models one after the other, each with its own optimizer, and it may keep its networks in a
module that is only a container. A search for modules takes some ten ms, so there are only a few.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lostflops.collect.hooks import watch_modules
from lostflops.collect.interludes import watch_inner
from lostflops.collect.steps import FORWARD, ClockedStep

if TYPE_CHECKING:
    from lostflops.collect.recorder import Recorder

_MOST_LOOKS: Final = 20
_DEEPEST: Final = 3
"""Number of levels below the outermost modules at which calls are watched, at most."""
_MOST_MODULES: Final = 1000


class ForwardCalls:
    """The modules whose calls are watched as forward passes; updated at each step's end, on the training thread."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lowest: list[weakref.ref[Any]] = []
        self._removals: list[Callable[[], None]] = []
        self._looks = self._depth = 0
        self._whole_from = 0
        self.is_due = True
        """There is an optimizer whose modules are not watched yet."""

    def step_ended(self, step: ClockedStep, *, is_compiled: bool) -> None:
        if self.is_due and self._looks < _MOST_LOOKS:
            self.is_due = False
            self._looks += 1
            self._depth = 0
            self._watch(self._recorder.find_roots(), step)
        elif self._is_unseen(step) and not is_compiled and self._depth < _DEEPEST:
            self._depth += 1
            known = [module for module in (reference() for reference in self._lowest) if module is not None]
            self._watch([child for module in known for child in module.children()], step)

    def remove(self) -> None:
        for removal in self._removals:
            removal()
        self._removals.clear()

    def _is_unseen(self, step: ClockedStep) -> bool:
        """Return whether a step that was watched from its start had a backward pass and no forward pass."""
        return bool(step.number > self._whole_from and step.microbatches and not step.phases[FORWARD])

    def _watch(self, modules: list[Any], step: ClockedStep) -> None:
        fresh = [module for module in modules[:_MOST_MODULES] if module not in self._watched]
        self._removals += watch_modules(self._recorder, fresh)
        self._removals += watch_inner(self._recorder, fresh)
        self._watched.update(fresh)
        self._lowest = [weakref.ref(module) for module in modules[:_MOST_MODULES]]
        self._whole_from = step.number + 1
