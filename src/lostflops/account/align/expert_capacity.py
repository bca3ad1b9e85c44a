"""Whether experts take a limited number of tokens: then even exchanges do not show an even router.

The sizes of all-to-alls show three kinds of limits:

- Fixed: all exchanges of a group move the same bytes on every rank, in every step. Each expert has a fixed number of
  places: tokens beyond it are dropped, and free places are padded.
- Fitted: each exchange has one size on all ranks, but not always the same. Places follow the fullest expert.
- Limited: a rank often gets exactly the same number of tokens, and no rank ever gets more, while the total changes:
  tokens beyond a limit are dropped, without padding.

Even all-to-alls also turn heads and sequences (Ulysses) or pass blocks of keys and values in a ring. So they count only
if the group is named as one of experts, or if all of the job's all-to-alls run in modules that hold experts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from lostflops.account.align.expert_loads import Exchange, ExpertLoads, exchanges_by_step, expert_loads, read_exchanges
from lostflops.account.facts.mesh_names import EXPERT_KINDS, kinds_of
from lostflops.core.units import format_bytes

if TYPE_CHECKING:
    from lostflops.store.run import Run

_FEWEST: Final = 4
"""Exchanges that must be even: two there and two back."""
_FEWEST_TIMES: Final = 3
"""Exchanges in which a rank must get exactly the most."""
_MOST_SIZES: Final = 3
_EXPERT_MODULE: Final = re.compile(r"(?:^|[._])(?:moe|experts?)(?:[._]|$)", re.IGNORECASE)
_NAMES: Final = "select distinct group_id, description from groups where description is not null"
_GROUPS: Final = """
    select group_id from collectives where op = 'all_to_all'
    union select group_id from enqueues where op = 'all_to_all'"""
_MODULES: Final = """
    select distinct module from events where kind = 'op' and name like 'c10d::alltoall%' and module is not null"""
_PARAMETERS: Final = "select distinct name from parameters"


@dataclass(frozen=True, slots=True)
class EvenExchange:
    """All exchanges of a group with experts are even."""

    group: str
    kind: Literal["fixed", "fitted"]
    calls: int
    sizes: tuple[int, ...]
    """Distinct sizes in bytes, the largest first."""

    @property
    def text(self) -> str:
        if self.kind == "fixed":
            same = " or ".join(map(format_bytes, self.sizes[:_MOST_SIZES]))
            return (
                f"All {self.calls:,} exchanges of tokens in group {self.group} move {same} on every rank. Experts have "
                "a fixed capacity, or the router is forced to be even. With a capacity, tokens beyond it are dropped "
                "and free places are padded; neither is recorded, so balance is unknown."
            )
        return (
            f"Each of {self.calls:,} exchanges of tokens in group {self.group} has one size on all ranks, but sizes "
            f"change ({format_bytes(self.sizes[-1])} to {format_bytes(self.sizes[0])}). Experts are padded to the "
            "fullest one, or capacity follows the batch; how many tokens each expert gets is not recorded, so balance "
            "is unknown."
        )


@dataclass(frozen=True, slots=True)
class TokenLimit:
    """The fullest rank of a layer often gets exactly the same number of bytes, and no rank gets more."""

    layer: int
    layers: int
    ranks: tuple[int, ...]
    """Ranks that get the most, exactly."""
    bytes: int
    times: int
    """Exchanges in which some rank gets exactly the most."""
    exchanges: int

    @property
    def text(self) -> str:
        where = f" of MoE layer {self.layer + 1} of {self.layers}" if self.layers > 1 else ""
        who = f"rank {self.ranks[0]}" if len(self.ranks) == 1 else f"ranks {', '.join(map(str, self.ranks))}"
        return (
            f"Experts{where} on {who} get exactly {format_bytes(self.bytes)} of tokens in {self.times:,} of "
            f"{self.exchanges:,} exchanges, and no rank gets more: a capacity limits them. Tokens beyond it are "
            "dropped; how many is not recorded."
        )


def even_exchanges(run: Run) -> Iterator[EvenExchange]:
    """Yield the groups whose exchanges with experts are all even."""
    columns, _ = read_exchanges(run)
    by_group: dict[str, list[list[Exchange]]] = {}
    for _, calls in exchanges_by_step(columns):
        by_group.setdefault(calls[0].group, []).append(calls)
    for group, steps in by_group.items():
        sizes = [[call.size for call in calls] for calls in steps]
        known = [[size for size in own if size is not None] for own in sizes]
        count = sum(map(len, known))
        if count >= _FEWEST and known == sizes and _serves_experts(run, group):
            distinct = tuple(sorted({int(size) for own in known for size in own}, reverse=True))
            is_fixed = all(own == known[0] for own in known) and len(distinct) <= max(1, len(known[0]) // _FEWEST)
            yield EvenExchange(group, "fixed" if is_fixed else "fitted", count, distinct)


def _serves_experts(run: Run, group: str) -> bool:
    """Return whether the group is named as one of experts, or every all-to-all of the job is in a module with some."""
    kinds = [kinds_of(name) for other, name in run.rows(_NAMES) if other == group]
    if any(kinds):
        return any(own and own <= EXPERT_KINDS for own in kinds)
    return len(run.rows(_GROUPS)) == 1 and are_in_experts(run, modules_of_exchanges(run))


def modules_of_exchanges(run: Run) -> list[str]:
    """Return the modules in which the job calls all-to-alls, where modules were recorded."""
    return [name for (name,) in run.rows(_MODULES)]


def are_in_experts(run: Run, modules: Sequence[str]) -> bool:
    """Return whether all these modules belong to experts or hold them; False without modules."""
    names = [name for (name,) in run.rows(_PARAMETERS)]
    return bool(modules) and all(_has_experts(one, names) for one in modules)


def _has_experts(module: str, parameters: Sequence[str]) -> bool:
    inside = (name[len(module) :] for name in parameters if name.startswith(f"{module}."))
    return bool(_EXPERT_MODULE.search(module)) or any(map(_EXPERT_MODULE.search, inside))


def token_limits(loads: ExpertLoads) -> Iterator[TokenLimit]:
    """Yield the layers in which tokens beyond a limit are dropped.

    By chance the fullest rank gets the same number of tokens a few times, but not in half of all exchanges. If it gets
    all tokens, or the batch never changes, there need be no limit: then the total is always the same.
    """
    for layer in range(loads.layers):
        load = np.array([trip.load for trip in loads.trips if trip.layer == layer and not trip.turn])
        if len(load) < _FEWEST_TIMES:
            continue
        most = load.max()
        times = int((load.max(axis=1) == most).sum())
        changes = np.unique(load.sum(axis=1)).size
        if times >= max(_FEWEST_TIMES, len(load) / 2) and changes >= max(_FEWEST_TIMES, len(load) / 2):
            places = np.flatnonzero((load == most).any(axis=0))
            ranks = tuple(loads.ranks[place] for place in places.tolist())
            yield TokenLimit(layer, loads.layers, ranks, int(most), times, len(load))


def capacity_notes(run: Run) -> Iterator[str]:
    """Yield what limits the tokens of experts, in words."""
    loads = expert_loads(run)
    if loads is not None:
        yield from (limit.text for limit in token_limits(loads))
    yield from (even.text for even in even_exchanges(run))
