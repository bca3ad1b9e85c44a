"""Where in the program an allocation or a free was: the module, the op, the source line, and whether it communicates.

The op is the outermost one below what only wraps: a module's range, an annotation, autograd's engine. So a linear
layer's output is `aten::linear` and not the `aten::empty` in it, and a gradient is its node, such as `AddmmBackward0`.
Where it communicates, it is the innermost that does, such as `FSDP::all_gather (layers.0)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lostflops.account.ledger.batches import BatchVocabulary
from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.record import distinct
from lostflops.account.memory.blocks import Codes, Flags, Ns

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
    """Of each instant that was asked for. `module`, `op` and `line` are places in the texts of the spans; `again` where
    it is a forward op inside a backward pass, as activation checkpointing makes it; `top` is the span of the op, the
    number of spans where nothing is around."""

    module: Codes
    op: Codes
    line: Codes
    communicates: Flags
    again: Flags
    top: Codes


class SiteSpans:
    """Ops, modules, annotations and collectives of a rank's threads. `texts` are what codes stand for, `""` first."""

    def __init__(self, run: Run, rank: int, more: tuple[str, ...] = ()) -> None:
        """`more` are texts to have beside those of spans."""
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
        """The span around each, their number where there is none."""
        self._nests: dict[int, tuple[Codes, Nest]] = {}
        self._nest()
        self._inside = self._around[:-1]
        self.texts = tuple(sorted({"", *names.values, *modules.values, *sources.values, *more}))
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
        for lane in distinct(lanes[lanes >= 0]):
            if lane in self._nests:
                rows, nest = self._nests[lane]
                asked = np.flatnonzero(lanes == lane)
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
        for lane in distinct(self.lane):
            rows = np.flatnonzero(self.lane == lane)
            nest = Nest(self.start[rows], self.stop[rows])
            parents = nest.parents()
            self._around[rows] = np.where(parents >= 0, rows[parents], self.lane.size)
            self._nests[lane] = rows, nest

    def _nearest(self, wanted: Flags) -> Codes:
        """The innermost that is wanted of each and what is around it; each round doubles the distance covered."""
        found = np.where(np.append(wanted, True), np.arange(self._around.size), self._around)
        while True:
            farther = found[found]
            if np.array_equal(farther, found):
                return found
            found = farther

    def _outermost(self, begins: Flags) -> Codes:
        """The op to name of each: one that begins anew, or that lies in a module or an annotation, or in nothing."""
        wraps = np.append(self._kind != _OP, True)
        return self._nearest(begins | wraps[:-1] | wraps[self._inside])

    def _flag_recomputed_ops(self, numbered: Flags, node: Flags) -> Flags:
        """As in ledger.recompute: the nearest numbered op is a forward op, and a backward node is around it."""
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
    """A node of the backward pass without the engine's call around it, a source line without its function.

    >>> names = ("autograd::engine::evaluate_function: MmBackward0", "aten::mm", "train.py(12): step")
    >>> tuple(map(shorten_label, names))
    ('MmBackward0', 'aten::mm', 'train.py:12')
    """
    return _SOURCE.sub(r"\1:\2", _ENGINE.sub("", text, count=1))
