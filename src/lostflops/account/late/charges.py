"""Waits charged to their cause: to the last rank to arrive, or to the ranks that it had waited for itself.

A rank is late to one kind of group because it waited in another: for its tensor-parallel peers before the gradients are
reduced, for the previous stage before it can send. The shape of a group gives its kind, so that one kind can be
compared between the ranks of a cohort.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lostflops.account.late.comparison import Codes, Comparison, Flags, Floats, usual
from lostflops.account.ledger.lines import WAIT_LINES
from lostflops.account.ledger.profile import StepProfile

_MOST_HOPS: Final = 64
_RANGE: Final = re.compile(r"@(\d+)-(\d+)(?:/(\d+))?$")


def charges(profiles: Sequence[StepProfile], comparison: Comparison, origins: Sequence[int]) -> Floats:
    """Return the exposed waiting of all ranks by the rank that it is charged to, in the order of `comparison.ranks`.

    A rank that is not an origin passes on what it inherited to those that it waited for: the part of its lateness that
    it spent waiting, more than its peers, in groups of another kind, or in transfers.
    """
    waits = _waits(profiles, comparison.ranks)
    charge = _direct(waits, comparison)
    if origins and waits.ns.size:
        _settle(charge, waits, comparison, origins)
    return np.asarray(charge.sum(axis=1))


def charges_by_line(
    profiles: Sequence[StepProfile], comparison: Comparison, origins: Sequence[int]
) -> dict[str, Floats]:
    """Return the charges of each line of waits alone; together they are those of `charges`."""
    waits = _waits(profiles, comparison.ranks)
    found = {}
    for line, is_transfer in zip(WAIT_LINES, (False, True), strict=True):
        charge = _direct(waits, comparison)
        charge[:, : waits.transfers.size][:, waits.transfers != is_transfer] = 0.0
        if origins and waits.ns.size:
            _settle(charge, waits, comparison, origins)
        found[line] = np.asarray(charge.sum(axis=1))
    return found


def _direct(waits: _Waits, comparison: Comparison) -> Floats:
    """Return how long others waited for each rank, by kind of group, in ns."""
    charge = np.zeros((comparison.ranks.size, max(waits.transfers.size, 1)))
    np.add.at(charge, (waits.late, waits.kind), waits.ns)
    return charge


def _settle(charge: Floats, waits: _Waits, comparison: Comparison, origins: Sequence[int]) -> None:
    """Pass charges on until each is with the rank that caused it."""
    beyond = _beyond(waits, comparison, charge.shape)
    share, keep = _ways(waits, beyond, comparison)
    keep[[comparison.place(rank) for rank in origins]] = 1.0
    received = charge.copy()
    for _ in range(_MOST_HOPS):
        moving = received * (1 - keep)
        if moving.sum() < 1:
            break
        received = np.zeros(charge.shape)
        _pass_on(received, moving, waits, share)
        charge += received - moving


@dataclass(frozen=True, slots=True)
class _Waits:
    """Waits of ranks for others, by kind of group."""

    waiter: Codes
    """Place of the rank that waited."""
    late: Codes
    """Place of the rank that it waited for."""
    kind: Codes
    """Number of the kind of group."""
    ns: Floats
    transfers: Flags
    """Which kinds are transfers."""


def _waits(profiles: Sequence[StepProfile], ranks: Codes) -> _Waits:
    known = set(ranks.tolist())
    rows = [(one.rank, wait) for one in profiles for wait in one.waited if wait.ns and {one.rank, wait.late} <= known]
    names = list(dict.fromkeys((kind_of(wait.group), wait.is_transfer) for _, wait in rows))
    numbers = {name: number for number, name in enumerate(names)}
    return _Waits(
        np.searchsorted(ranks, np.array([rank for rank, _ in rows], np.int64)),
        np.searchsorted(ranks, np.array([wait.late for _, wait in rows], np.int64)),
        np.array([numbers[kind_of(wait.group), wait.is_transfer] for _, wait in rows], np.int64),
        np.array([wait.ns for _, wait in rows], np.float64),
        np.array([is_transfer for _, is_transfer in names], np.bool_),
    )


def kind_of(group: str) -> str:
    """Return what groups with the same role have in common: how many ranks, and how far apart.

    >>> kind_of("5@0-7"), kind_of("12@1-7/2"), kind_of("3@0,5,6"), kind_of("unknown group")
    ('8/1', '4/2', '0,5,6', 'unknown group')
    """
    match = _RANGE.search(group)
    if match is None:
        return group.rpartition("@")[2]
    first, last, stride = int(match[1]), int(match[2]), int(match[3] or 1)
    return f"{(last - first) // stride + 1}/{stride}"


def _beyond(waits: _Waits, comparison: Comparison, shape: tuple[int, ...]) -> Floats:
    """Return by rank and kind the share of its waiting that is more than its peers'."""
    total = np.zeros(shape)
    np.add.at(total, (waits.waiter, waits.kind), waits.ns)
    excess = np.maximum(total - usual(total, comparison.cohort), 0.0)
    return np.asarray(excess / np.maximum(total, 1.0))


def _ways(waits: _Waits, beyond: Floats, comparison: Comparison) -> tuple[Floats, Floats]:
    """Return how much of each wait is inherited lateness, and the share of charges that a rank keeps, by rank and kind.

    A rank keeps the lateness that its own waits do not explain. Its lateness is the longest time that one rank waited
    for it.
    """
    inherited = waits.ns * beyond[waits.waiter, waits.kind]
    total = np.zeros(beyond.shape)
    np.add.at(total, (waits.waiter, waits.kind), inherited)
    elsewhere = total.sum(axis=1, keepdims=True) - np.where(waits.transfers, 0.0, total)
    own = np.maximum(comparison.excess * comparison.counts, 0.0)[:, np.newaxis]
    lateness = np.zeros(beyond.shape)
    np.maximum.at(lateness, (waits.late, waits.kind), waits.ns)
    return inherited, np.asarray(
        (np.maximum(own, lateness - elsewhere) + 1.0) / (np.maximum(own + elsewhere, lateness) + 1.0)
    )


def _pass_on(charge: Floats, moving: Floats, waits: _Waits, inherited: Floats) -> None:
    """Give charges that ranks do not keep to those that they waited for, in kinds that the charge did not come from."""
    for kind in range(charge.shape[1]):
        usable = waits.transfers[waits.kind] | (waits.kind != kind)
        weight = np.where(usable, inherited, 0.0)
        total = np.zeros(charge.shape[0])
        np.add.at(total, waits.waiter, weight)
        amount = moving[waits.waiter, kind] * weight / np.maximum(total[waits.waiter], 1e-9)
        np.add.at(charge, (waits.late, waits.kind), amount)
        charge[:, kind] += np.where(total > 0, 0.0, moving[:, kind])
