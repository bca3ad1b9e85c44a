"""DDP's buckets: no Python object holds them and no event shows them, but DDP logs their sizes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lostflops.account.memory.blocks import Codes
from lostflops.account.memory.holdings import RankHoldings
from lostflops.account.memory.owners import CODE, Owner

if TYPE_CHECKING:
    from lostflops.store.run import Run


@dataclass(frozen=True, slots=True)
class Buckets:
    """Buckets that were there when the window opened."""

    bytes: Codes
    """Size of each."""
    owner: int
    """Their owner; if gradients are views into them, they are the gradients."""

    def without(self, held: RankHoldings) -> Buckets:
        """Return the buckets that were not seen as storages of gradients."""
        seen = held.rows(held.before & (held.owner == CODE[Owner.GRADIENTS]))
        each = dict(zip(seen.address.tolist(), seen.bytes.tolist(), strict=True))
        left = Counter(self.bytes.tolist()) - Counter(each.values())
        return Buckets(np.array(sorted(left.elements()), np.int64), self.owner)


NONE = Buckets(np.empty(0, np.int64), CODE[Owner.COMMUNICATION])


def buckets_of(run: Run, rank: int) -> Buckets:
    """Read the buckets that the last attempt of the rank logged."""
    found = run.rows(f"select value from job where rank = {rank} and key = 'ddp' order by attempt desc limit 1")
    logged = json.loads(found[0][0]) if found else []
    if not isinstance(logged, list) or not logged:
        return NONE
    sizes = [size for one in logged if isinstance(one, dict) for size in _sizes(one)]
    is_view = any(one.get("gradient_as_bucket_view") for one in logged if isinstance(one, dict))
    owner = Owner.GRADIENTS if is_view else Owner.COMMUNICATION
    return Buckets(np.array(sizes, np.int64), CODE[owner])


def _sizes(logged: dict[str, Any]) -> list[int]:
    """Return the sizes of buckets, as rebuilt if they were.

    >>> _sizes({"bucket_sizes": "300", "rebuilt_bucket_sizes": "100, 200", "has_rebuilt_buckets": 1})
    [100, 200]
    """
    text = str(logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or "")
    return [int(word) for word in text.split(",") if word.strip().isdecimal()]
