"""Calls of a rank's modules: when each ran forward and backward, and how far its forward would be run again.

A checkpoint without re-entry stops recomputing as soon as everything that the backward pass needs exists. What an op
saves of its inputs exists before it runs, so if a module ends with a linear layer, that layer does not run again.
PyTorch's derivatives.yaml says which ops save what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from lostflops.store.run import Run


Ns = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int64]

_ROOT: Final = "(root)"
_NODE: Final = "autograd::engine::evaluate_function: "


_NOTHING: Final = (
    "add add_ sub sub_ rsub neg view _unsafe_view reshape _reshape_alias t transpose permute expand expand_as "
    "unsqueeze squeeze flatten unflatten slice select narrow split split_with_sizes chunk unbind cat stack sum "
    "mean clone contiguous detach alias as_strided to _to_copy type_as movedim swapaxes view_as zeros_like ones_like "
    "copy_ pad constant_pad_nd ones zeros empty empty_like result_type item"
)
_OF_WHAT_IT_CALLS: Final = (
    "linear matmul layer_norm group_norm batch_norm dropout softmax log_softmax conv1d conv2d conv3d einsum "
    "cross_entropy_loss nll_loss nll_loss_nd scaled_dot_product_attention multi_head_attention_forward mse_loss_ "
    "_convolution feature_dropout max_pool2d adaptive_avg_pool2d instance_norm binary_cross_entropy_with_logits"
)
_INPUTS: Final = (
    "addmm mm bmm baddbmm addbmm mv dot convolution mul mul_ div div_ pow gelu silu mish elu leaky_relu abs log sin "
    "cos hardtanh hardswish square mse_loss smooth_l1_loss embedding gather index_select where maximum minimum"
)
NOTHING: Final = frozenset(f"aten::{name}" for text in (_NOTHING, _OF_WHAT_IT_CALLS) for name in text.split())
"""Ops that keep nothing of a tensor, or that call others which do; those are looked at themselves."""
ONLY_INPUTS: Final = frozenset(f"aten::{name}" for name in _INPUTS.split())
"""Ops that keep inputs and no results. All others are assumed to keep results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCalls:
    """Calls of modules that have a backward pass: one row per call. `start` to `back_stop` are host times in ns."""

    modules: tuple[str, ...]
    """Names in the order in which modules first ran, a module before those inside it."""
    end: Codes
    """For each module, the place after its last inner module."""
    module: Codes
    """Place in `modules` of each call."""
    start: Ns
    stop: Ns
    cut: Ns
    """Time up to which the call would be run again."""
    back: Ns
    """Start of its backward pass."""
    back_stop: Ns
    """End of its backward pass."""
    ns: Ns
    """Time from `start` to `cut`, of the device if there is one."""
    forward_ns: Ns
    """Time from `start` to `stop`, of the device if there is one."""
    steps: int
    """Number of steps with these calls."""
    notes: tuple[str, ...] = ()

    def per_step(self, column: Ns) -> npt.NDArray[np.float64]:
        """Return for each module the median of its calls, times its calls per step."""
        each = [column[self.module == at] for at in range(len(self.modules))]
        return np.array([float(np.median(own)) * own.size / max(self.steps, 1) for own in each])


def calls_of(run: Run, rank: int) -> ModuleCalls:
    """Return the calls of modules that could be wrapped: called once in each pass, and not already recomputed."""
    ran = _columns(
        run,
        f"select module, start, start + dur as stop, lane, coalesce(step, -1) as step from events where rank = {rank} "
        f"and kind = 'module' and module is not null and module <> '{_ROOT}' order by start, stop desc",
    )
    nodes = _columns(
        run,
        f"select module, start, start + dur as stop from events where rank = {rank} and kind = 'op' "
        f"and starts_with(name, '{_NODE}') order by start",
    )
    forward = ~_inside(ran["start"], nodes["start"], nodes["stop"])
    again = {str(name) for name in ran["module"][~forward]}
    ran = {name: column[forward] for name, column in ran.items()}
    names = ran["module"].astype(str)
    found, shared = list[tuple[str, Codes, Ns, Ns]](), 0
    back_names = np.array([name or "" for name in nodes["module"].tolist()], np.str_)
    for name in dict.fromkeys(names.tolist()):
        if any(_is_related(name, other) for other in again):
            continue
        rows = np.flatnonzero(names == name)
        inner = (back_names == name) | np.char.startswith(back_names, f"{name}.")
        paired = _backward(ran["start"][rows], ran["stop"][rows], nodes["start"][inner], nodes["stop"][inner])
        if paired is None:
            shared += 1
        elif paired[0].size:
            found.append((name, rows[paired[0]], *paired[1:]))
    return _make_module_calls(run, rank, (ran, found), _notes(again, shared))


def _make_module_calls(
    run: Run,
    rank: int,
    told: tuple[dict[str, npt.NDArray[Any]], list[tuple[str, Codes, Ns, Ns]]],
    notes: tuple[str, ...],
) -> ModuleCalls:
    ran, found = told
    found = _sort_by_nesting(found)
    modules = tuple(name for name, *_ in found)
    none = np.zeros(0, np.int64)
    rows = np.concatenate([none, *(rows for _, rows, _, _ in found)])
    start, stop = ran["start"][rows], ran["stop"][rows]
    cut = _find_cut_times(run, rank, start, stop)
    return ModuleCalls(
        modules=modules,
        end=np.array([_end(modules, at) for at in range(len(modules))], np.int64),
        module=np.repeat(np.arange(len(found)), [rows.size for _, rows, _, _ in found]).astype(np.int64),
        start=start,
        stop=stop,
        cut=cut,
        back=np.concatenate([none, *(back for _, _, back, _ in found)]),
        back_stop=np.concatenate([none, *(back_stop for *_, back_stop in found)]),
        ns=_took(run, rank, start, cut),
        forward_ns=_took(run, rank, start, stop),
        steps=np.unique(ran["step"][rows]).size,
        notes=notes,
    )


def _columns(run: Run, query: str) -> dict[str, npt.NDArray[Any]]:
    return {
        name: np.ma.getdata(column) if column.dtype != object else column for name, column in run.columns(query).items()
    }


def _inside(times: Ns, start: Ns, stop: Ns) -> npt.NDArray[np.bool_]:
    """Return whether each time is inside one of these spans."""
    if not start.size:
        return np.zeros(times.size, np.bool_)
    at = np.searchsorted(start, times, "right") - 1
    latest = np.maximum.accumulate(stop)
    inside: npt.NDArray[np.bool_] = (at >= 0) & (times < latest[at])
    return inside


def _is_related(name: str, other: str) -> bool:
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")


def _backward(start: Ns, stop: Ns, node: Ns, node_stop: Ns) -> tuple[Codes, Ns, Ns] | None:
    """Return the calls with a backward pass before the next call, and when that ran; None if a later call's backward
    comes first, so that they cannot be matched."""
    first = np.searchsorted(node, stop)
    last = np.searchsorted(node, np.append(start[1:], np.iinfo(np.int64).max))
    has = np.flatnonzero(last > first)
    if not has.size:
        return has, has, has
    if has.size <= has[-1]:
        return None
    back_stop = np.array([node_stop[first[row] : last[row]].max() for row in has], np.int64)
    return has, node[first[has]], back_stop


def _sort_by_nesting(found: list[tuple[str, Codes, Ns, Ns]]) -> list[tuple[str, Codes, Ns, Ns]]:
    """Sort modules: each before those inside it, and these before the next."""
    place = {name: at for at, (name, *_) in enumerate(found)}

    def key(name: str) -> tuple[int, ...]:
        parts = name.split(".")
        around = (".".join(parts[: count + 1]) for count in range(len(parts)))
        return tuple(place[outer] for outer in around if outer in place)

    return sorted(found, key=lambda one: key(one[0]))


def _end(modules: Sequence[str], at: int) -> int:
    end = at + 1
    while end < len(modules) and modules[end].startswith(f"{modules[at]}."):
        end += 1
    return end


def _find_cut_times(run: Run, rank: int, start: Ns, stop: Ns) -> Ns:
    """Return when everything that backward needs exists: the start if it needs nothing, the stop if no sequence numbers
    were recorded."""
    ops = _columns(
        run,
        f"select name, start, start + dur as stop from events where rank = {rank} and kind = 'op' and "
        "sequence is not null and coalesce(forward_thread, 0) = 0 order by start",
    )
    if not ops["start"].size:
        return stop
    names = ops["name"].astype(str)
    saves = np.flatnonzero(~np.isin(names, list(NOTHING)) & ~np.char.startswith(names, "autograd::"))
    if not saves.size:
        return start
    ready = np.where(np.isin(names[saves], list(ONLY_INPUTS)), ops["start"][saves], ops["stop"][saves])
    at = np.searchsorted(ops["start"][saves], stop) - 1
    own = (at >= 0) & (ops["start"][saves][at] >= start)
    return np.where(own, np.minimum(ready[at], stop), start)


def _took(run: Run, rank: int, start: Ns, stop: Ns) -> Ns:
    """Return the device time of what was launched between the two times, or the host time if there is no device."""
    work = _columns(
        run,
        "select launch.start as start, work.dur as dur from events work join events launch using (rank, correlation) "
        f"where rank = {rank} and work.kind in ('kernel', 'memcpy', 'memset') and launch.kind = 'runtime' "
        "order by launch.start",
    )
    if not work["start"].size:
        return stop - start
    done = np.append(0, np.cumsum(work["dur"]))
    took: Ns = done[np.searchsorted(work["start"], stop)] - done[np.searchsorted(work["start"], start)]
    return took.astype(np.int64)


def _notes(again: set[str], shared: int) -> tuple[str, ...]:
    notes = []
    if again:
        notes.append(f"Left out, because the run already recomputes them: {', '.join(sorted(again)[:3])} ...")
    if shared:
        notes.append(f"Left out: {shared} modules that are called several times in one pass.")
    return tuple(notes)
