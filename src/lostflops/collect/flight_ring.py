"""Times at which this rank enqueued collectives, read now and then from the ring of PyTorch's Flight Recorder.

A read holds the interpreter lock for some 10 us per entry of the ring. If every rank read at its own time, each stall
would hold up all of them; so ranks read at the same step numbers, and their stalls coincide.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any, Final

_BUDGET_SHARE: Final = 0.25
"""Share of the budget that reading may take."""
_ROUNDS: Final = tuple(1 << power for power in range(20))
_HALF_FULL: Final = 1000
"""Number of entries that fill half of the ring that `lostflops run` asks for: a window must be read before it
overwrites its own entries."""


class FlightRing:
    def __init__(self, overhead: float) -> None:
        self._share = max(1e-6, overhead * _BUDGET_SHARE)
        self._dump = _dump_function()
        self._last = -1
        self._known: set[str] = set()
        self._cost = 0
        self._step = self._read_step = 0
        self._was_open = self._has_closed = False
        self.is_due = False

    def edge(self, step: int, step_time: int) -> None:
        """Make a read due every 16 steps or more: a power of two that keeps reading within its budget.
        Ranks whose step times differ a little choose the same power, or twice it and then agree every other time.
        """
        self._step = step
        enough = self._cost / self._share
        every = next((steps for steps in _ROUNDS if steps * step_time >= enough), _ROUNDS[-1])
        if step % max(16, every) == 0:
            self.is_due = True

    def window_edge(self, step: int, *, is_open: bool) -> bool:
        """Return whether to read now: when a window opens, inside it before the ring is full, and a step after it.

        The trace has no group for gloo's collectives, so an overwritten entry leaves a collective without a group. The
        last collectives of a window find their entries only if later entries were read too.
        """
        self._step = step
        per_step = (self._last + 1) / max(self._read_step, 1)
        is_filling = is_open and (step - self._read_step) * per_step >= _HALF_FULL
        opens, is_after = is_open and not self._was_open, self._has_closed
        self._has_closed = self._was_open and not is_open
        self._was_open = is_open
        is_now = opens or is_filling or is_after
        self.is_due |= is_now
        return is_now

    def read(self) -> dict[str, Any] | None:
        """Return a record of what was enqueued since the last read; None if nothing was, or the ring cannot be read."""
        self.is_due = False
        if self._dump is None:
            return None
        began = time.monotonic_ns()
        dump = pickle.loads(self._dump())  # noqa: S301 - made by this very process
        fresh = [entry for entry in dump.get("entries", ()) if entry["record_id"] > self._last]
        self._cost = time.monotonic_ns() - began
        if not fresh:
            return None
        lost = fresh[0]["record_id"] - self._last - 1
        self._last, self._read_step = fresh[-1]["record_id"], self._step
        return {
            "kind": "collectives",
            "entries": [_entry(entry) for entry in fresh],
            "groups": self._new_groups(),
            "lost": lost,
        }

    def _new_groups(self) -> dict[str, Any]:
        new = {name: group for name, group in process_groups().items() if name not in self._known}
        self._known |= new.keys()
        return new


def process_groups() -> dict[str, Any]:
    """Return description, members and backend of the groups that this rank is in, by PyTorch's name."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return {}
    world = dist.distributed_c10d._world  # noqa: SLF001 - nothing public lists them
    return {
        name: {
            "description": getattr(group, "group_desc", None),
            "ranks": sorted(world.pg_group_ranks.get(group, {})),
            "backend": dist.get_backend(group),
        }
        for group, name in list(world.pg_names.items())
    }


def _entry(entry: dict[str, Any]) -> list[Any]:
    is_p2p = bool(entry["is_p2p"])
    return [
        entry["record_id"],
        entry["process_group"][0],
        entry["p2p_seq_id" if is_p2p else "collective_seq_id"],
        entry["profiling_name"],
        is_p2p,
        _bytes(entry.get("input_sizes"), entry.get("input_dtypes")),
        _bytes(entry.get("output_sizes"), entry.get("output_dtypes")),
        entry["time_created_ns"],
    ]


_WIDTHS: Final = {
    "Double": 8, "Long": 8, "ComplexFloat": 8, "ComplexDouble": 16, "Float": 4, "Int": 4, "ComplexHalf": 4,
    "Half": 2, "BFloat16": 2, "Short": 2, "Byte": 1, "Char": 1, "Bool": 1,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1,
}  # fmt: skip


def _bytes(sizes: Any, dtypes: Any) -> int | None:
    """Return the total size of tensors in bytes; None if a type is unknown."""
    total = 0
    for shape, dtype in zip(sizes or (), dtypes or (), strict=False):
        if dtype not in _WIDTHS:
            return None
        elements = _WIDTHS[dtype]
        for extent in shape:
            elements *= extent
        total += elements
    return total


def dump_ring() -> bytes | None:
    """Return a whole dump, with the lines that called the collectives; None if this torch has no recorder."""
    dump = _dump_function(has_lines=True)
    return None if dump is None else dump()


def _dump_function(*, has_lines: bool = False) -> Callable[[], bytes] | None:
    try:
        from torch._C import _distributed_c10d as c10d
    except ImportError:
        return None
    for name in ("_dump_fr_trace", "_dump_nccl_trace"):
        dump = getattr(c10d, name, None)
        if dump is not None:
            return lambda: dump(includeCollectives=True, includeStackTraces=has_lines, onlyActive=False)
    return None
