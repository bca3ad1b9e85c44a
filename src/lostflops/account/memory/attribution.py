"""Owners of blocks that no recorded object holds, inferred from where they were allocated and when they lived.

A pass is a stretch of one phase without another between; repeated forward ops inside a backward pass are a pass of
their own. Blocks that forward allocates and backward frees are activations. Blocks that backward leaves until the
optimizer's step are gradients. Blocks that the optimizer's step leaves are its state. Blocks that are made ahead of a
pass's first module, or copied from the host, and stay are batches. Blocks that come and go within one pass are
temporary, and so are those that the program keeps from one pass until the next. Everything else stays unattributed.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lostflops.account.ledger.phases import BACKWARD, DATA, FORWARD, OPTIMIZER, OTHER
from lostflops.account.memory.blocks import Codes, Flags
from lostflops.account.memory.moments import Moments
from lostflops.account.memory.owners import CODE, Owner

UNATTRIBUTED: Final = CODE[Owner.UNATTRIBUTED]
_NEVER: Final = np.iinfo(np.int64).max


def owners(born: Codes, died: Codes, is_sure: Flags, moments: Moments, *, are_gradients_seen: bool = False) -> Codes:
    """Return the owners of blocks that were allocated while the window was open.

    `born` and `died` are the events of their birth and death; `died` is the number of events if they stayed. Unless
    `is_sure`, they ended at some time before: nothing follows from when they died. If gradients were seen at each
    update, a block that communicates and is not one of them is no gradient, however long it stays.
    """
    count = moments.time.size
    stays, end = died >= count, np.minimum(died, count - 1)
    goes, first, last = ~stays, moments.phase[born], moments.phase[end]
    again, communicates = moments.again[born], moments.sites.communicates
    number = np.where(again, moments.repeats()[born], moments.passes()[born])
    within = goes & moments.known[born] & (number == np.where(again, moments.repeats()[end], moments.passes()[end]))
    ended = np.where(stays, _NEVER, moments.time[end])
    updates = np.searchsorted(moments.updates, ended) - np.searchsorted(moments.updates, moments.time[born])
    forward, backward = (first == FORWARD) | again, (first == BACKWARD) & ~again
    in_backward = goes & (last == BACKWARD)
    rules = (
        (communicates[born] & is_sure & (not are_gradients_seen) & (first != FORWARD) & (updates > 0), Owner.GRADIENTS),
        (communicates[born], Owner.COMMUNICATION),
        (~is_sure, Owner.UNATTRIBUTED),
        (backward & goes & communicates[end], Owner.COMMUNICATION),
        (~within & moments.is_input()[born], Owner.BATCHES),
        (~within & (forward | (first == OTHER)) & moments.copied[born], Owner.BATCHES),
        (within, Owner.TEMPORARIES),
        (forward & in_backward & (updates == 0), Owner.ACTIVATIONS),
        (backward & ((updates > 0) | in_backward), Owner.GRADIENTS),
        ((first == OPTIMIZER) & ((updates > 0) | stays), Owner.OPTIMIZER),
        (first == DATA, Owner.BATCHES),
        (forward & goes & (updates <= 1), Owner.TEMPORARIES),
        (backward & goes, Owner.TEMPORARIES),
    )
    return np.select([rule for rule, _ in rules], [CODE[owner] for _, owner in rules], UNATTRIBUTED)


def number_sites(module: Codes, op: Codes, size: Codes) -> Codes:
    """Number the sites: the place in the program, and the size."""
    order = np.lexsort((size, op, module))
    differs = np.zeros(order.size, np.bool_)
    for column in (module, op, size):
        differs[1:] |= column[order][1:] != column[order][:-1]
    found = np.empty_like(order)
    found[order] = differs.cumsum()
    return found


def infer_cut_owners(owner: Codes, site: Codes, is_cut: Flags, inside: Flags) -> Codes:
    """Give blocks that the window's end cut off the owner that all others of their site have.

    Only others that were allocated while the window was open count. Owners stay as they are if these differ.
    """
    count = int(site.max(initial=-1)) + 1
    low, high = np.full(count, UNATTRIBUTED), np.full(count, -1)
    whole = inside & ~is_cut
    np.minimum.at(low, site[whole], owner[whole])
    np.maximum.at(high, site[whole], owner[whole])
    agreed = is_cut & (low == high)[site] & (owner == UNATTRIBUTED)
    return np.where(agreed, low[site], owner)
