"""Forward ops that a backward pass repeats, because of activation checkpointing.

PyTorch gives an op a sequence number only while it records for autograd. A true backward op runs with recording off, so
inside the backward pass the nearest numbered op around it is the backward node, which carries the number of its forward
thread. Around a recomputed op it is a forward op, which carries none.

Recomputation inside a compiled graph cannot be seen, and a second derivative (`create_graph=True`) looks like
recomputation.
"""

from __future__ import annotations

import numpy as np

from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.record import Flags, Record
from lostflops.store.intervals import Intervals
from lostflops.store.row_groups import group_rows


def flag_recomputed_ops(record: Record) -> Flags:
    """Return for each row of the record's formulas whether it is a forward op inside a backward pass."""
    formulas, numbered, host = record.formulas, record.numbered, record.host
    again = np.zeros(formulas.start.size, np.bool_)
    by_lane = dict(group_rows(numbered.lane))
    for lane, own in group_rows(formulas.lane):
        nodes = host.having(Trait.BACKWARD, [lane])
        backward = Intervals.of(host.start[nodes], host.stop[nodes])
        ops = own[backward.within(formulas.start[own], formulas.start[own] + 1) > 0]
        around = by_lane.get(lane, own[:0])
        around = around[backward.within(numbered.start[around], numbered.start[around] + 1) > 0]
        nearest = Nest(numbered.start[around], numbered.stop[around]).innermost(formulas.start[ops])
        known = nearest >= 0
        again[ops[known]] = numbered.forward_thread[around[nearest[known]]] == 0
    return again
