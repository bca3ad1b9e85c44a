"""Blocks with their owners and places: as the collector saw them, else by where and when they lived."""

from __future__ import annotations

import numpy as np

from lostflops.account.memory.attribution import UNATTRIBUTED, infer_cut_owners, number_sites, owners
from lostflops.account.memory.blocks import BEFORE, Blocks, Codes, Flags, Ns
from lostflops.account.memory.events import NOWHERE
from lostflops.account.memory.holdings import NOBODY, RankHoldings, rows_of
from lostflops.account.memory.moments import Moments
from lostflops.account.memory.owners import CODE, Owner
from lostflops.account.memory.tally import Tally

_LIMITS = np.iinfo(np.int64)


def label_blocks(
    counted: Tally, held: RankHoldings, moments: Moments, texts: tuple[str, ...], window: tuple[int, int]
) -> tuple[Blocks, tuple[str, ...]]:
    """Return blocks with owners, and the texts with those of the holdings; `window` is when it opened and closed."""
    events, pairs, sites = counted.events, counted.pairs, moments.sites
    inside, at = pairs.born != BEFORE, np.maximum(pairs.born, 0)
    edges = np.concatenate((window[:1], events.time, window[1:]))
    start, stop = edges[pairs.born + 1], edges[pairs.died + 1]
    module, op, line, phase, step = (
        np.where(inside, codes[at], none)
        for codes, none in ((sites.module, 0), (sites.op, 0), (sites.line, 0), (moments.phase, -1), (events.step, -1))
    )
    row = _rows(counted, held, start, stop)
    owner = _owners(counted, held, row, moments)
    is_cut = (pairs.died == len(events)) & (step == events.step.max()) & (step >= 0)
    owner = infer_cut_owners(owner, number_sites(module, op, pairs.bytes), is_cut | _is_lost(counted), inside)
    modules, lines, texts = _encode_holdings(held, texts)
    module = np.where(modules[row] > 0, modules[row], module)
    line = np.where(lines[row] > 0, lines[row], np.where(inside & (events.line[at] > 0), events.line[at], line))
    columns = {"owner": owner, "module": module, "op": op, "line": line, "phase": phase, "step": step}
    lives = {"born": pairs.born, "died": pairs.died, "start": start, "stop": stop}
    return Blocks(**lives, bytes=pairs.bytes, address=pairs.address, **columns), texts


def _rows(counted: Tally, held: RankHoldings, start: Ns, stop: Ns) -> Codes:
    """Return the row of each block's holding: a block from before may have been seen before the first event."""
    pairs = counted.pairs
    first = np.where(pairs.born == BEFORE, _LIMITS.min, start)
    return rows_of(held, pairs.address, first, np.where(pairs.died == len(counted.events), _LIMITS.max, stop))


def _is_lost(counted: Tally) -> Flags:
    """Return whether the free of a block was not recorded, though it must have been freed."""
    return ~counted.pairs.freed & (counted.pairs.died < len(counted.events))


def _owners(counted: Tally, held: RankHoldings, row: Codes, moments: Moments) -> Codes:
    pairs = counted.pairs
    found = np.full(len(pairs), UNATTRIBUTED)
    if not counted.has_addresses:
        return found
    inside = pairs.born != BEFORE
    is_sure = ~_is_lost(counted)[inside]
    are_seen = bool((~held.before & (held.owner == CODE[Owner.GRADIENTS])).any())
    found[inside] = owners(pairs.born[inside], pairs.died[inside], is_sure, moments, are_gradients_seen=are_seen)
    found[~inside & (pairs.address == NOWHERE)] = counted.buckets.owner
    seen = np.append(held.owner, NOBODY)[row]
    return np.where(seen < NOBODY, seen, found)


def _encode_holdings(held: RankHoldings, texts: tuple[str, ...]) -> tuple[Codes, Codes, tuple[str, ...]]:
    """Return modules and lines of holdings as codes, a last one for no holding, and the texts with theirs."""
    modules, lines = held.module(), held.line.tolist()
    known = set(texts)
    more = (*texts, *sorted({text for text in (*modules, *lines) if text not in known}))
    place = {text: code for code, text in enumerate(more)}
    codes = [np.array([place[text] for text in (*column, "")], np.int64) for column in (modules, lines)]
    return codes[0], codes[1], more
