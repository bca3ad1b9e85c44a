"""Dtype of a run's matmuls, and the part of its forward pass that backward recomputes, from recorded shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lostflops.account.ledger.phases import FORWARD, phases_at
from lostflops.account.ledger.recompute import flag_recomputed_ops
from lostflops.account.ledger.record import Record, records

if TYPE_CHECKING:
    from lostflops.store.run import Run


class WorkFacts(NamedTuple):
    """The facts `dtype` and `recomputed` of `predict.whatif.change.Facts`; fp32 that kernels round to tf32 is still
    fp32 here."""

    dtype: str | None
    recomputed: float | None


def work_facts(run: Run) -> WorkFacts:
    """Return the facts of the lowest rank that recorded any shape; both are None if none of the four lowest ranks
    did."""
    for (rank,) in run.rows("select distinct rank from steps order by rank")[:4]:
        for record in records(run, [rank]):
            if (found := _derive_work_facts(record)) is not None:
                return found
    return WorkFacts(None, None)


def _derive_work_facts(record: Record) -> WorkFacts | None:
    formulas = record.formulas
    works = [work for _, work in formulas.efforts]
    flops = np.array([0 if work is None else work.model for work in works], np.float64)[formulas.effort]
    if not flops.sum():
        return None
    dtypes = np.array(["" if work is None else work.dtype for work in works])[formulas.effort]
    by_dtype = {dtype: float(flops[dtypes == dtype].sum()) for dtype in np.unique(dtypes).tolist()}
    again = flag_recomputed_ops(record)
    forward = (phases_at(record, formulas.start, formulas.lane) == FORWARD) & ~again
    once = float(flops[forward].sum())
    return WorkFacts(max(by_dtype, key=by_dtype.__getitem__), float(flops[again].sum()) / once if once else None)
