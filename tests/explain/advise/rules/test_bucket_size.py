"""What larger buckets save at most if a what-if cannot say it, and which sizes are tried."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lostflops.core.estimate import Estimate
from lostflops.explain.advise.rules import bucket_size

MIB = 1 << 20
EVERY = np.ones(20, np.bool_)


def traffic(size: int) -> Any:
    """Twenty buckets per step that together are exposed for half of the time."""
    return SimpleNamespace(
        of=lambda meetings: meetings,
        exposed=np.full(20, 25),
        size=np.full(20, size),
        a_step=lambda rows: float(rows.sum()),
    )


def case_with(prices: dict[str, float], cap_mib: float = 0.0) -> Any:
    caps = [{"bucket_cap_bytes": round(cap_mib * MIB)}] if cap_mib else []
    found = {change: Estimate.measured(gain, 0.01, "a replay") for change, gain in prices.items()}
    return SimpleNamespace(wall=1000, job={"ddp": caps}, price=found.get)


def test_small_buckets_save_at_most_their_exposed_time_where_a_whatif_cannot_say() -> None:
    """Buckets of one size do not show their latency: simulated jobs saved up to twice what perfect overlap does."""
    unclear = case_with({"bucket_mb=25": 0.01, "overlap=perfect": 0.3})
    priced = bucket_size._price(unclear, traffic(4_000), EVERY, 25.0, is_sure=False)
    assert (priced["saving"].value, priced["saving"].kind) == (pytest.approx(0.5), "bound")


@pytest.mark.parametrize(("prices", "size"), [({}, 100 * MIB), ({}, 4_000), ({"bucket_mb=25": 0.2}, 4_000)])
def test_otherwise_the_whatif_prices_them(prices: dict[str, float], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_size, "latency_share", lambda *_: 0.8)
    priced = bucket_size._price(case_with(prices), traffic(size), EVERY, 25.0, is_sure=False)
    assert priced == {"changes": ("bucket_mb=25",)}


def test_the_size_that_the_job_has_is_not_tried() -> None:
    prices = {"bucket_mb=5": 0.1, "bucket_mb=25": 0.3}
    assert bucket_size._best(case_with(prices), 400 * MIB) == 25.0
    assert bucket_size._best(case_with(prices, cap_mib=25), 400 * MIB) == 5.0
    assert bucket_size._best(case_with({"bucket_mb=25": 0.3}, cap_mib=25), 400 * MIB) is None


@pytest.mark.parametrize(("sizes", "is_found"), [("703520", False), ("703520, 1048576", True), (None, True)])
def test_two_models_of_one_bucket_each_do_not_have_small_buckets(
    monkeypatch: pytest.MonkeyPatch, sizes: str | None, is_found: bool
) -> None:
    made = traffic(700_000)
    made.in_backward, made.graph, made.is_sharded, made.bytes_a_step = EVERY, None, False, lambda rows: 1_400_000
    case = case_with({"bucket_mb=25": 0.2})
    case.job["ddp"] = [{"bucket_sizes": "703520"}, {"bucket_sizes": "703520", "rebuilt_bucket_sizes": sizes}]
    if sizes is None:
        del case.job["ddp"]
    monkeypatch.setattr(bucket_size, "traffic_of", lambda _: made)
    monkeypatch.setattr(bucket_size, "select_collectives", lambda *_: EVERY)
    monkeypatch.setattr(bucket_size, "_repeats", lambda _: False)
    monkeypatch.setattr(bucket_size, "in_hooks", lambda _: ~EVERY)
    monkeypatch.setattr(bucket_size, "_claim", lambda *_: "claimed")
    assert bool(list(bucket_size.RULE.find(case))) == is_found
