"""Ids of process groups that are the same on every rank.

PyTorch's own name (`"0"`, `"12"`, a hash) is not enough: two runs of one program, or two subgroups made with local
synchronisation, may share it. The members decide.

    >>> group_id("0", range(8))
    '0@0-7'
    >>> group_id("12", [1, 3, 5, 7])
    '12@1-7/2'
"""

import hashlib
import json
from collections.abc import Sequence

from lostflops.ingest.common.refusals import refuse_large_member

_LONGEST_LIST = 8


def group_id(name: str, ranks: Sequence[int]) -> str:
    """Return `name@members`; the order of `ranks` does not matter. Raise BrokenSource if no job has such a rank."""
    ordered = ranks if isinstance(ranks, range) and ranks.step > 0 else sorted(set(ranks))
    if ordered:
        refuse_large_member(name, ordered[-1])
    return f"{name}@{_members(ordered)}"


def _members(ranks: Sequence[int]) -> str:
    """Return the members as text: one rank, a range with its stride, a short list, or the ends and a hash.

    >>> _members([3]), _members([0, 3, 4]), _members([0, 4])
    ('3', '0,3,4', '0-4/4')
    >>> _members([n * n for n in range(65)])
    '0..4096#b370d3c30c7d'
    """
    if not ranks:
        raise ValueError("a process group has at least one member")
    first, last = ranks[0], ranks[-1]
    if len(ranks) == 1:
        return str(first)
    stride = ranks[1] - first
    steps = range(first, last + 1, stride)
    if ranks == steps or ranks == list(steps[: len(ranks) + 1]):
        return f"{first}-{last}" if stride == 1 else f"{first}-{last}/{stride}"
    text = ",".join(map(str, ranks))
    if len(ranks) <= _LONGEST_LIST:
        return text
    return f"{first}..{last}#{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def parse_ranks(text: str) -> list[int] | None:
    """Return the ranks in a list as written by Kineto and Flight Recorder; None if they are not all there.

    Kineto shortens lists of more than 30 (`format_list` in torch/csrc/profiler/util.cpp).

    >>> parse_ranks("[0, 1, 2]")
    [0, 1, 2]
    >>> parse_ranks("[0, 1, ...]"), parse_ranks("[]")
    (None, None)
    """
    try:
        ranks = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(ranks, list) or not ranks:
        return None
    return ranks if all(type(rank) is int and rank >= 0 for rank in ranks) else None
