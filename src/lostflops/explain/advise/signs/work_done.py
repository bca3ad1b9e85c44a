"""Work of each rank and step: counted tokens and samples, FLOPs from shapes, or else elements that ops read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.record import records
from lostflops.explain.advise.case import once_per_case
from lostflops.explain.advise.signs.computed_ranks import read_computed_ranks, tensors_of

if TYPE_CHECKING:
    from lostflops.account.ledger.record import Record
    from lostflops.explain.advise.case import Case

Floats = npt.NDArray[np.float64]

_COUNTED: Final = """
    select rank, step, {unit} from timings where attempt = {attempt} and {unit} is not null order by rank, step"""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Work of ranks in steps, in one unit."""

    unit: str
    ranks: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    amount: Floats
    """Work by rank and step; NaN if unknown."""

    def beyond(self, rank: int, cohort: Sequence[int]) -> float | None:
        """Return the share by which a rank did more than the median of others, in the steps for which both are known;
        None if there are none."""
        own, others = self._rows([rank]), self._rows(cohort)
        if not own.size or not others.size:
            return None
        usual = np.median(others, axis=0)
        known = ~np.isnan(own[0]) & ~np.isnan(usual) & (usual > 0)
        return float(own[0][known].sum() / usual[known].sum()) - 1 if known.any() else None

    def of(self, ranks: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]) -> Floats:
        """Return the work of these ranks and steps; NaN if unknown."""
        found = np.full((ranks.size, steps.size), np.nan)
        _, row, own_row = np.intersect1d(ranks, self.ranks, return_indices=True)
        _, column, own_column = np.intersect1d(steps, self.steps, return_indices=True)
        found[np.ix_(row, column)] = self.amount[np.ix_(own_row, own_column)]
        return found

    def _rows(self, ranks: Sequence[int]) -> Floats:
        return self.amount[np.isin(self.ranks, ranks)]


@once_per_case
def work_done(case: Case) -> list[WorkDone]:
    """Return the work in each unit, the most telling unit first; units that were not counted are left out."""
    counted = [_read_counted_work(case, unit) for unit in ("tokens", "samples")]
    found = (*counted, _flops(case), _elements(case))
    return [done for done in found if done is not None and bool((done.amount > 0).any())]


def _read_counted_work(case: Case, unit: str) -> WorkDone | None:
    if case.timed_steps is None:
        return None
    query = _COUNTED.format(unit=unit, attempt=case.timed_steps.pace.attempt)
    rank, step, amount = (np.asarray(column) for column in case.run.columns(query).values())
    return _tabulate_work(unit, rank.astype(np.int64), step.astype(np.int64), amount.astype(np.float64))


def _flops(case: Case) -> WorkDone | None:
    parts = [(one.rank, *_flops_of(one)) for one in records(case.run, case.scope.ranks)]
    rank = np.concatenate([np.empty(0, np.int64), *(np.full(steps.size, number) for number, steps, _ in parts)])
    step = np.concatenate([np.empty(0, np.int64), *(steps for _, steps, _ in parts)])
    return _tabulate_work("FLOPs", rank, step, np.concatenate([np.empty(0), *(amount for *_, amount in parts)]))


def _flops_of(record: Record) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the steps of a rank and the FLOPs of the ops called in each. If one counted op calls another, their work
    counts twice, on all ranks alike."""
    steps, formulas = record.steps, record.formulas
    worth = np.array([work.model + work.recompute if work is not None else 0 for _, work in formulas.efforts] or [0])
    at = np.searchsorted(steps.start, formulas.start, "right") - 1
    inside = at >= 0
    amount = np.zeros(steps.start.size)
    np.add.at(amount, at[inside], worth[formulas.effort[inside]].astype(np.float64))
    return steps.number.astype(np.int64), amount


def _elements(case: Case) -> WorkDone | None:
    """Return the elements of the largest input of every op in the mean step (step -1). Each op counts by the time that
    it takes on the mean rank: copies of small tensors say nothing about the work. Other kernels for the same layer are
    not more work."""
    ranks = [one.rank for one in read_computed_ranks(case)]
    read: defaultdict[tuple[str, int], float] = defaultdict(float)
    took = Counter[str]()
    for one in read_computed_ranks(case):
        for piece in one.pieces:
            if size := max((prod(shape) for shape in tensors_of(piece)), default=0):
                read[piece.op, one.rank] += size * piece.count / one.steps
                took[piece.op] += piece.own_ns
    usual = {op: sum(read.get((op, rank), 0.0) for rank in ranks) / len(ranks) for op in took}
    ops = {rank: {op for op, owner in read if owner == rank} for rank in ranks}
    amount = [
        sum(
            took[op] * read.get((op, rank), 0.0) / usual[op]
            for op in _comparable(rank, ops, case.mesh.cohort(rank, ranks))
        )
        for rank in ranks
    ]
    return _tabulate_work(
        "tensor elements", np.array(ranks, np.int64), np.full(len(ranks), -1), np.array(amount, np.float64)
    )


def _comparable(rank: int, ops: Mapping[int, AbstractSet[str]], cohort: Sequence[int]) -> AbstractSet[str]:
    """Return the ops of a rank that count as its work: all, unless it lacks ops that all its peers call. In that case
    it runs others in their place, and only common ops count. Peers without shapes are ignored.

    >>> sorted(_comparable(1, {0: {"conv", "relu"}, 1: {"im2col", "relu"}, 2: set()}, (0, 1, 2)))
    ['relu']
    >>> sorted(_comparable(1, {0: {"relu"}, 1: {"embedding", "relu"}}, (0, 1)))
    ['embedding', 'relu']
    """
    peers = [ops[peer] for peer in cohort if peer != rank and ops.get(peer)]
    common = set.intersection(*map(set, peers)) if peers else set(ops[rank])
    return ops[rank] if common <= ops[rank] else ops[rank] & common


def _tabulate_work(
    unit: str, rank: npt.NDArray[np.int64], step: npt.NDArray[np.int64], amount: Floats
) -> WorkDone | None:
    if not rank.size:
        return None
    ranks, row = np.unique(rank, return_inverse=True)
    steps, column = np.unique(step, return_inverse=True)
    table = np.full((ranks.size, steps.size), np.nan)
    table[row, column] = amount
    return WorkDone(unit, ranks, steps, table)
