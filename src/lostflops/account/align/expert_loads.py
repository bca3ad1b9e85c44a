"""How many bytes of tokens each rank gets for its experts, by step and layer.

An all-to-all that sends tokens to experts is followed by one that brings them back: what a rank got, it returns, and
gets back what it sent. Backward passes make the same pair again. So pairs of sizes show which calls are exchanges of
experts, which of them belong to one layer, and how much each rank has to compute in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from lostflops.store.run import Run

Floats = npt.NDArray[np.float64]
_MOST_STEPS: Final = 32
"""Profiled steps first, because only they show what a load costs, then the last ones."""
_SAME: Final = 1e-6
"""Shares of ranks that differ by less are the same: the numbers of tokens are equal, only their bytes differ."""

_ENQUEUED: Final = f"""
    with newest as (select max(attempt) as attempt from enqueues),
    timed as (
        select e.rank, e.group_id, e.seq as call, t.step, e.bytes_in, e.bytes_out
        from (select * from enqueues join newest using (attempt) where op = 'all_to_all') e
        asof join timings t on e.rank = t.rank and e.attempt = t.attempt and e.created >= t.start
        where e.created < t.stop
    )
    select * from timed where group_id is not null and call is not null and bytes_in + bytes_out is not null
    qualify dense_rank() over (order by step in (select step from collectives) desc, step desc) <= {_MOST_STEPS}
    order by group_id, call, rank"""
_RECORDED: Final = f"""
    select rank, group_id, coalesce(seq, ordinal) as call, step, bytes_in, bytes_out from collectives
    where op = 'all_to_all' and group_id is not null and step is not null and bytes_in + bytes_out is not null
    qualify dense_rank() over (order by step desc) <= {_MOST_STEPS} order by group_id, call, rank"""

_EVENTS: Final = """
    select rank, event, group_id, {call} as call, step from collectives
    where op = 'all_to_all' and group_id is not null and call is not null"""


@dataclass(frozen=True, slots=True)
class ExpertTrip:
    """Tokens that travel to experts and back once, in a forward or a backward pass."""

    group: str
    call: int
    """Number of the all-to-all that sends the tokens."""
    step: int
    layer: int
    """Place among the layers with experts, from 0."""
    turn: int
    """How often tokens of this layer and microbatch travelled before: 0 in the forward pass."""
    load: Floats
    """Bytes that each rank gets, in the order of `ExpertLoads.ranks`."""


@dataclass(frozen=True, slots=True)
class ExpertLoads:
    """Trips between one set of ranks."""

    ranks: tuple[int, ...]
    trips: tuple[ExpertTrip, ...]
    sent_by: Mapping[tuple[int, int], int]
    """Place of the trip that a rank's event in table `collectives` begins."""

    def shares(self, layer: int) -> Floats:
        """Return by step and rank how many times the mean load a rank has in the forward passes of a layer."""
        steps: dict[int, Floats] = {}
        for trip in self.trips:
            if trip.layer == layer and not trip.turn:
                steps[trip.step] = steps.get(trip.step, np.zeros(len(self.ranks))) + trip.load
        loads = np.array(list(steps.values())).reshape(-1, len(self.ranks))
        found: Floats = loads / loads.mean(axis=1, keepdims=True)
        return found

    @property
    def layers(self) -> int:
        return 1 + max(trip.layer for trip in self.trips)


def expert_loads(run: Run) -> ExpertLoads | None:
    """Return the trips of tokens in some steps, of the group that is most uneven; None without trips."""
    columns, call = read_exchanges(run)
    by_ranks: dict[tuple[int, ...], list[ExpertTrip]] = {}
    for ranks, calls in exchanges_by_step(columns):
        by_ranks.setdefault(ranks, []).extend(_trips(calls))
    most = max(by_ranks, key=lambda ranks: sum(np.ptp(trip.load) for trip in by_ranks[ranks]), default=())
    trips = tuple(by_ranks[most]) if most else ()
    if not trips:
        return None
    number = {(trip.group, trip.call, trip.step): at for at, trip in enumerate(trips)}
    sent_by = {
        (rank, event): at
        for rank, event, *own in run.rows(_EVENTS.format(call=call))
        if (at := number.get(tuple(own))) is not None
    }
    return ExpertLoads(most, trips, sent_by)


def read_exchanges(run: Run) -> tuple[dict[str, npt.NDArray[np.generic]], str]:
    """Return a row for each rank of each all-to-all in some steps, and what numbers calls in table `collectives`."""
    columns = run.columns(_ENQUEUED)
    if len(columns["rank"]):
        return columns, "seq"
    return run.columns(_RECORDED), "coalesce(seq, ordinal)"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One all-to-all of a group, over all its ranks."""

    group: str
    number: int
    step: int
    sent: Floats
    received: Floats
    """Bytes that each rank gets."""
    sends: Floats
    gets: Floats
    """Shares of ranks in what is sent and received."""

    @property
    def size(self) -> float | None:
        """Bytes that every rank sends and gets; None if ranks differ."""
        first = float(self.received[0])
        is_even = (self.received == first).all() and (self.sent == first).all()
        return first if is_even else None

    def goes_like(self, other: Exchange) -> bool:
        return _alike(self.sends, other.sends) and _alike(self.gets, other.gets)

    def returns(self, other: Exchange) -> bool:
        return _alike(self.sends, other.gets) and _alike(self.gets, other.sends)


def _alike(one: Floats, other: Floats) -> bool:
    return bool(np.abs(one - other).max() <= _SAME)


def exchanges_by_step(
    columns: dict[str, npt.NDArray[np.generic]],
) -> Iterator[tuple[tuple[int, ...], list[Exchange]]]:
    """Yield the calls of one group and step, in order, that all its ranks recorded and that move anything. A step with
    fewer calls than usual was not recorded as a whole."""
    members, calls = _calls(columns)
    usual = {name: np.median([len(own) for (group, _), own in calls.items() if group == name]) for name, _ in calls}
    for (name, _), own in calls.items():
        if len(own) >= usual[name]:
            yield members[name], own


def _calls(
    columns: dict[str, npt.NDArray[np.generic]],
) -> tuple[dict[str, tuple[int, ...]], dict[tuple[str, int], list[Exchange]]]:
    """Return the ranks of each group, which are those that most of its calls have, and its calls by step."""
    group, call = (np.asarray(columns[name]) for name in ("group_id", "call"))
    rank, step, sent, received = (np.asarray(columns[name]) for name in ("rank", "step", "bytes_in", "bytes_out"))
    fresh = np.ones(group.size, np.bool_)
    fresh[1:] = (group[1:] != group[:-1]) | (call[1:] != call[:-1])
    parts = [slice(*ends) for ends in pairwise([*np.flatnonzero(fresh).tolist(), group.size])]
    taking: dict[str, Counter[tuple[int, ...]]] = {}
    for part in parts:
        taking.setdefault(str(group[part.start]), Counter())[tuple(rank[part].tolist())] += 1
    members = {name: counts.most_common(1)[0][0] for name, counts in taking.items()}
    calls: dict[tuple[str, int], list[Exchange]] = {}
    for part in parts:
        name = str(group[part.start])
        own = sent[part].astype(float), received[part].astype(float)
        if len(members[name]) > 1 and tuple(rank[part].tolist()) == members[name] and all(one.any() for one in own):
            number, at = int(call[part.start]), int(step[part.start])
            made = Exchange(name, number, at, own[0], own[1], own[0] / own[0].sum(), own[1] / own[1].sum())
            calls.setdefault((name, at), []).append(made)
    return members, calls


def _trips(calls: list[Exchange]) -> Iterator[ExpertTrip]:
    """Yield the trips of a step. A load that was seen before in the step is the backward pass of that layer; the first
    new one after it begins the next microbatch."""
    seen: list[Exchange] = []
    turns: list[int] = []
    is_back = False
    for there in _departures(calls):
        layer = next((at for at, one in enumerate(seen) if _alike(one.gets, there.gets)), None)
        if layer is None:
            if is_back:
                seen, turns, is_back = [], [], False
            layer = len(seen)
            seen.append(there)
            turns.append(-1)
        else:
            is_back = True
        turns[layer] += 1
        yield ExpertTrip(there.group, there.number, there.step, layer, turns[layer], there.received)


def _departures(calls: list[Exchange]) -> Iterator[Exchange]:
    """Yield the calls that send tokens to experts: the next one in another direction brings them back. Gradients for
    the first layer's inputs are not needed, so its backward pass may go there alone."""
    seen: list[Exchange] = []
    at = 0
    while at < len(calls):
        there = calls[at]
        back = next((later for later in range(at + 1, len(calls)) if not calls[later].goes_like(there)), len(calls))
        # Probabilities or scales may travel with the tokens: experts begin after the last of such calls.
        last = calls[back - 1]
        at = back
        if back < len(calls) and calls[back].returns(there):
            seen.append(there)
            yield last
            at = back + 1
        elif any(there.goes_like(one) for one in seen):
            yield last
