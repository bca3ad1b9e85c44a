"""Owners of memory while a window with `memory` is open: what the program's tensors are, and when they were freed.

Whether a tensor is gone is checked at the edges of phases and steps.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from lostflops.collect import tensor_owners
from lostflops.collect.register import Register
from lostflops.collect.steps import OPTIMIZER
from lostflops.collect.storages import list_tracked_objects, tensors_in, without_overrides


class Holdings:
    """A watcher of steps and phases, from `open` to `close`; all on the training thread."""

    def __init__(self, recorder: Any, window: int) -> None:
        self._recorder, self._window = recorder, window
        self._parameters: list[tuple[str | None, weakref.ref[Any]]] = []
        self._names: dict[int, str | None] = {}
        self._register = Register()
        self._phase, self._state = -1, 0
        self._is_over = self._has_updated = False

    def open(self) -> None:
        """Register what exists before the profiler starts, because its trace has no allocations of that."""
        self._safely(self._opens)
        if not self._is_over:
            self._recorder.clock.watchers.append(self)
            self._recorder.holdings = self

    def close(self) -> None:
        self._safely(self._closes)
        self._is_over = True
        if self._recorder.holdings is self:
            self._recorder.holdings = None
            self._recorder.clock.watchers.remove(self)
        self._register = Register()

    def phase(self, phase: int) -> None:
        left, self._phase = self._phase, phase
        self._safely(lambda: self._turns(left, phase))

    def step(self, _number: int) -> None:
        self._safely(self._steps)

    def batch(self, batch: Any) -> None:
        """Register a batch that was handed over just now."""
        self._safely(lambda: self._takes(batch))

    def goes_in(self, inputs: Any) -> None:
        """Register the inputs of the outermost module.

        An input that existed before and has no owner is a batch that no loader handed over.
        """
        self._safely(lambda: self._goes_in(inputs))

    def _opens(self) -> None:
        found = list_tracked_objects(torch.Tensor, torch.nn.Module)
        tensors = [thing for thing in found if isinstance(thing, torch.Tensor)]
        modules = [thing for thing in found if not isinstance(thing, torch.Tensor)]
        for owner, name, tensor in tensor_owners.of_modules(self._recorder.roots(), modules):
            self._register.see([(owner, name, tensor)])
            if owner == tensor_owners.PARAMETERS:
                self._follow(name, tensor)
        for optimizer in self._recorder.optimizers():
            for tensor in tensor_owners.parameters_of(optimizer):
                self._register.see([(tensor_owners.PARAMETERS, None, tensor)])
                self._follow(None, tensor)
        self._see_gradients()
        self._see_state()
        self._register.see((tensor_owners.BATCHES, None, tensor) for tensor in self._recorder.last_batch())
        self._register.see_others(tensors)
        self._register.all_before()
        self._put(is_opening=True)

    def _follow(self, name: str | None, parameter: Any) -> None:
        if id(parameter) not in self._names:
            self._names[id(parameter)] = name
            self._parameters.append((name, weakref.ref(parameter)))

    def _closes(self) -> None:
        self._register.poll_all()
        tensors = list_tracked_objects(torch.Tensor)
        self._register.see_others(tensors)
        self._register.name_holders(tensors)
        self._put()
        if self._register.dropped:
            self._recorder.note("holdings_dropped", "too many storages in a window", self._register.dropped)

    def _takes(self, batch: Any) -> None:
        self._register.see((tensor_owners.BATCHES, None, tensor) for tensor in tensors_in(batch))
        self._put()

    def _goes_in(self, inputs: Any) -> None:
        tensors = [tensor for tensor in tensors_in(inputs) if not tensor.requires_grad]
        self._register.see(((tensor_owners.BATCHES, None, one) for one in tensors), only_known=True)
        self._put()

    def _turns(self, left: int, phase: int) -> None:
        self._register.poll()
        if phase == OPTIMIZER:
            self._see_gradients()
        elif left == OPTIMIZER:
            self._has_updated = True
            if self._size_of_state() != self._state:
                self._see_state()
        self._put()

    def _steps(self) -> None:
        is_replaced = self._register.poll_all()
        if not self._has_updated:  # an optimizer that no hook saw
            self._see_gradients()
        if is_replaced or self._size_of_state() != self._state:
            self._see_state()
        self._has_updated = False
        self._put()

    def _see_gradients(self) -> None:
        for name, reference in self._parameters:
            parameter = reference()
            # To ask others for it makes torch warn.
            if parameter is not None and parameter.is_leaf and parameter.grad is not None:
                self._register.see([(tensor_owners.GRADIENTS, name, parameter.grad)])

    def _size_of_state(self) -> int:
        return sum(map(tensor_owners.size_of_state, self._recorder.optimizers()))

    def _see_state(self) -> None:
        self._state = self._size_of_state()
        for optimizer in self._recorder.optimizers():
            self._register.see(tensor_owners.of_optimizer(optimizer, self._names))

    def _put(self, *, is_opening: bool = False) -> None:
        rows, gone = self._register.take()
        if rows or gone:
            now = self._recorder.wall(time.monotonic_ns())
            self._recorder.put(
                {"kind": "holdings", "window": self._window, "time": now, "before": is_opening, "rows": rows,
                 "gone": gone}
            )  # fmt: skip

    def _safely(self, action: Callable[[], None]) -> None:
        """Run `action`; an error ends the tracking of memory, and nothing else."""
        if self._is_over:
            return
        try:
            with without_overrides():
                action()
        except Exception as error:  # noqa: BLE001
            self._is_over = True
            self._recorder.note("holdings_failed", f"{type(error).__name__} while tracking memory")
