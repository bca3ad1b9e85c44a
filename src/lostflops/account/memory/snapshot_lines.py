"""Source lines that hold the memory of a snapshot, and the phase of each allocation, by recorded stacks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.source_code import function_of, place_of

if TYPE_CHECKING:
    from lostflops.store.run import Run

NO_LINE: Final = "(no source line recorded)"
_OPTIMIZER: Final = "torch/optim/"
_NO_OPTIMIZER: Final = ("lr_scheduler.py", "swa_utils.py")
_MODULE_CALLS: Final = ("_call_impl", "_wrapped_call_impl", "forward")
_BACKWARD_CALLS: Final = ("backward", "_engine_run_backward")


@dataclass(frozen=True, slots=True)
class LineHolding:
    """Memory that one source line allocated in one phase."""

    line: str
    phase: str | None
    """One of `ledger.phases.PHASES`; None if no stack was recorded."""
    bytes: int
    requested: int | None
    """Bytes that were asked for; None if the snapshot does not record them."""
    count: int


def line_holdings(run: Run, rank: int, device: str) -> tuple[LineHolding, ...]:
    """Return allocated bytes of a device such as `cuda:0` by line and phase, the largest first.

    They sum to what is allocated.
    """
    rows = run.rows(
        f"""select coalesce(line, '{NO_LINE}'), stack, sum(bytes)::BIGINT, count(*),
                case when bool_and(requested is not null) then sum(requested)::BIGINT end
            from allocator_blocks
            where rank = {int(rank)} and device_index = {int(device.partition(":")[2])} and state = 'allocated'
            group by line, stack"""
    )
    sums: defaultdict[tuple[str, str | None], list[int | None]] = defaultdict(lambda: [0, 0, 0])
    for line, stack, held, count, requested in rows:
        one = sums[line, phase_of(stack)]
        for place, value in enumerate((held, requested, count)):
            before = one[place]
            one[place] = None if before is None or value is None else before + value
    holdings = (
        LineHolding(line, phase, held or 0, requested, count or 0)
        for (line, phase), (held, requested, count) in sums.items()
    )
    return tuple(sorted(holdings, key=lambda one: (-one.bytes, one.line, one.phase or "")))


def phase_of(stack: str | None) -> str | None:
    """Return the phase by the innermost frame that shows one; None without a stack.

    A forward pass inside a backward pass is recomputation, and part of the backward pass. Inside an optimizer's step it
    is that of a closure, and stays forward.

    >>> phase_of("main train.py:9;backward lib/torch/_tensor.py:8;_call_impl lib/torch/nn/modules/module.py:7")
    'backward'
    >>> phase_of("main train.py:9;wrapper lib/torch/optim/optimizer.py:5;zeros_like lib/torch/_refs.py:1")
    'optimizer'
    """
    if stack is None:
        return None
    is_forward = False
    for frame in reversed(stack.split(";")):
        function, place = function_of(frame), place_of(frame)
        if function in _BACKWARD_CALLS or "autograd::Engine" in function:
            return "backward"
        if _OPTIMIZER in place and not any(name in place for name in _NO_OPTIMIZER):
            return "forward" if is_forward else "optimizer"
        if "torch/utils/data/" in place and not is_forward:
            return "data"
        is_forward |= function in _MODULE_CALLS
    return "forward" if is_forward else "other"
