"""Kernels and ops that ranks ran: read from a few ranks, taken as typical for all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lostflops.account.facts.devices import Device, find_device
from lostflops.account.ledger.partition import Partition, partition
from lostflops.account.ledger.pieces import ComputePiece, pieces
from lostflops.account.ledger.record import Record, records
from lostflops.account.ledger.windows import window
from lostflops.explain.advise.case import once_per_case

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case
    from lostflops.explain.advise.claim import Place

MOST_READ: Final = 8
"""At most this many ranks are read: the others do the same, or nearly."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A rank that was read, with its compute piece by piece."""

    record: Record
    made: Partition
    pieces: tuple[ComputePiece, ...]

    @property
    def rank(self) -> int:
        return self.record.rank

    @property
    def compute(self) -> int:
        return self.made.lines["compute"].total

    @property
    def steps(self) -> int:
        return max(len(self.made.window.number), 1)


@once_per_case
def read_computed_ranks(case: Case) -> list[Computed]:
    """Read the compute of up to `MOST_READ` ranks, evenly spread over all, piece by piece."""
    run, asked = case.run, case.scope
    ranks = asked.ranks
    every = -(-len(ranks) // MOST_READ) if ranks else 1
    found = []
    for record in records(run, ranks[::every]):
        made = partition(record, window(record, asked.kind, asked.steps))
        found.append(Computed(record, made, tuple(pieces(run, record, made))))
    return found


def device_of(case: Case) -> Device | None:
    """Return the accelerator that all ranks have; None if they have none, several or an unknown one."""
    names = [name for (name,) in case.run.rows("select distinct device from ranks")]
    return find_device(names[0]) if len(names) == 1 and names[0] else None


def attribute_line_share(case: Case, line: str, share: float, ranks: Iterable[int]) -> dict[Place, int]:
    """Attribute this share of a line on each of these ranks."""
    return {(rank, line): round(case.lines[rank][line] * min(share, 1.0)) for rank in ranks if case.lines[rank][line]}


def on_device(case: Case) -> list[int]:
    """Return the ranks with an accelerator."""
    return [rank.rank for rank in case.total.ranks if rank.rank not in case.total.on_thread]


def shapes_of(piece: ComputePiece) -> str:
    """Return an op with the shapes of its tensors, as people write them: `aten::mm [8192, 2048] [2048, 50257]`."""
    try:
        dims = [dim for dim in json.loads(piece.shapes or "[]") if dim]
    except ValueError:
        dims = []
    return " ".join([piece.op, *map(str, dims)])


def tensors_of(piece: ComputePiece) -> list[tuple[int, ...]]:
    """Return the shapes of an op's tensors, without those in lists."""
    return list(_parse_tensors(piece.shapes or "[]"))


@lru_cache(4096)
def _parse_tensors(shapes: str) -> tuple[tuple[int, ...], ...]:
    """Parse shapes once: all ranks call the same ops."""
    try:
        dims: list[Any] = json.loads(shapes)
    except ValueError:
        return ()
    return tuple(tuple(dim) for dim in dims if dim and all(isinstance(size, int) for size in dim))
