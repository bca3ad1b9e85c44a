"""Places in the program of allocations and frees: module, op, source line, and whether it communicates.

The op is the outermost one below mere wrappers: a module's range, an annotation, autograd's engine. So a linear layer's
output is `aten::linear` and not the `aten::empty` in it, and a gradient is its node, such as `AddmmBackward0`. If it
communicates, the op is the innermost that does, such as `FSDP::all_gather (layers.0)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lostflops.account.ledger.batches import BatchVocabulary
from lostflops.account.ledger.nesting import Nest
from lostflops.account.memory.blocks import Codes, Flags, Ns
from lostflops.store.row_groups import group_rows

if TYPE_CHECKING:
    from lostflops.store.run import Run

_COMMUNICATES: Final = re.compile(
    r"c10d::|_c10d_functional(?:_autograd)?::|record_param_comms|fsdp::|(?:nccl|gloo|mpi|ucc|xccl):"
    r"|FSDP::(?!inputs_to_device|cast_forward|root_pre_forward)"
    r"|FullyShardedDataParallel\._(?!to_kwargs|root_pre_forward)"
)
_ENGINE: Final = re.compile("autograd::engine::evaluate_function: ")
_SOURCE: Final = re.compile(r"^(.+\.py)\((\d+)\): .*")
_OP, _MODULE, _NOTE = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """Places in the program at the instants that were asked for."""

    module: Codes
    """Place in the texts of the spans."""
    op: Codes
    """Place in the texts of the spans."""
    line: Codes
    """Place in the texts of the spans."""
    communicates: Flags
    again: Flags
    """Whether it is a forward op inside a backward pass, as with activation checkpointing."""
    top: Codes
    """Span of the op; the number of spans if nothing is around."""


class SiteSpans:
    """Ops, modules, annotations and collectives of a rank's threads."""

    def __init__(self, run: Run, rank: int, more: tuple[str, ...] = ()) -> None:
        """Read the spans of a rank; `more` are texts to include besides those of spans."""
        rows = f"events where rank = {rank} and kind in ('op', 'module', 'annotation', 'host_comm') and dur > 0"
        rows += " and not starts_with(name, 'ProfilerStep#')"
        names, modules, sources = (_Texts(run, column, rows) for column in ("name", "module", "source"))
        columns: dict[str, Any] = run.columns(
            "select lane, start, start + dur as stop, "
            f"case kind when 'op' then {_OP} when 'module' then {_MODULE} else {_NOTE} end as kind, "
            "coalesce(sequence, -1) as sequence, coalesce(forward_thread, 0) as forward_thread, "
            f"{names.key} as name, {modules.key} as module, {sources.key} as source from {rows}"
        )
        whole = {name: np.asarray(columns[name]).astype(np.int64) for name in ("lane", "start", "stop", "kind")}
        self.lane, self.start, self.stop, self._kind = whole.values()
        self._around = np.full(self.lane.size + 1, self.lane.size, np.int64)
        """Span around each span; the number of spans if there is none."""
        self._nests: dict[int, tuple[Codes, Nest]] = {}
        self._nest()
        self._inside = self._around[:-1]
        self.texts = tuple(sorted({"", *names.values, *modules.values, *sources.values, *more}))
        """Texts of the codes, `""` first."""
        place = {text: code for code, text in enumerate(self.texts)}
        name, module, source = (
            np.append(texts.places(columns[column], place), 0)
            for column, texts in (("name", names), ("module", modules), ("source", sources))
        )
        numbered = np.asarray(columns["sequence"]) >= 0
        node = np.asarray(columns["forward_thread"]) > 0
        self.calls = np.sort(self.start[self._kind == _MODULE])
        """When modules were called."""
        self._module = module
        begins = names.flags(columns["name"], _ENGINE.match) | (numbered & ~node & np.append(node, False)[self._inside])
        communicates = names.flags(columns["name"], _COMMUNICATES.match)
        self._communicates = self._nearest(communicates) < self.lane.size
        self._top = np.where(self._communicates, self._nearest(communicates), self._outermost(begins))
        self._op = np.where(np.append(self._kind, _MODULE) == _MODULE, 0, name)[self._top]
        self._line = source[self._nearest(source[:-1] > 0)]
        self._again = self._flag_recomputed_ops(numbered, node)

    def at(self, times: Ns, lanes: Codes) -> Sites:
        inner = np.full(times.size, self.lane.size, np.int64)
        for lane, asked in group_rows(lanes):
            if lane in self._nests:
                rows, nest = self._nests[lane]
                found = nest.innermost(times[asked])
                inner[asked] = np.where(found >= 0, rows[found], self.lane.size)
        return Sites(
            module=self._module[inner],
            op=self._op[inner],
            line=self._line[inner],
            communicates=self._communicates[inner],
            again=self._again[inner],
            top=self._top[inner],
        )

    def __len__(self) -> int:
        return int(self.lane.size)

    def _nest(self) -> None:
        for lane, rows in group_rows(self.lane):
            nest = Nest(self.start[rows], self.stop[rows])
            parents = nest.parents()
            self._around[rows] = np.where(parents >= 0, rows[parents], self.lane.size)
            self._nests[lane] = rows, nest

    def _nearest(self, wanted: Flags) -> Codes:
        """Return the innermost wanted one of each span and those around it; each round doubles the distance."""
        found = np.where(np.append(wanted, True), np.arange(self._around.size), self._around)
        while True:
            farther = found[found]
            if np.array_equal(farther, found):
                return found
            found = farther

    def _outermost(self, begins: Flags) -> Codes:
        """Return the op to name for each span: one of `begins`, or one in a module, an annotation or nothing."""
        wraps = np.append(self._kind != _OP, True)
        return self._nearest(begins | wraps[:-1] | wraps[self._inside])

    def _flag_recomputed_ops(self, numbered: Flags, node: Flags) -> Flags:
        """Flag ops as `ledger.recompute` does: the nearest numbered op is forward, inside a backward node."""
        none = self.lane.size
        nearest = self._nearest(numbered)
        in_node = self._nearest(node) < none
        found: Flags = (nearest < none) & ~np.append(node, False)[nearest] & in_node
        return found


class _Texts:
    """A column's distinct texts, by their hashes in a query."""

    def __init__(self, run: Run, column: str, rows: str) -> None:
        text = f"coalesce({column}, '')"
        self.key = f"hash({text})"
        self._vocabulary = BatchVocabulary(run, self.key, text, rows)
        self.values = tuple(shorten_label(value) for (value,) in self._vocabulary.values)

    def places(self, keys: Any, place: dict[str, int]) -> Codes:
        return np.array([place[value] for value in self.values] or [0], np.int64)[self._codes(keys)]

    def flags(self, keys: Any, is_so: Callable[[str], object]) -> Flags:
        return np.array([bool(is_so(value)) for (value,) in self._vocabulary.values] or [False])[self._codes(keys)]

    def _codes(self, keys: Any) -> Codes:
        return self._vocabulary.codes(np.asarray(keys))


def shorten_label(text: str) -> str:
    """Return a backward node without the engine's call around it, a source line without its function.

    >>> names = ("autograd::engine::evaluate_function: MmBackward0", "aten::mm", "train.py(12): step")
    >>> tuple(map(shorten_label, names))
    ('MmBackward0', 'aten::mm', 'train.py:12')
    """
    return _SOURCE.sub(r"\1:\2", _ENGINE.sub("", text, count=1))
