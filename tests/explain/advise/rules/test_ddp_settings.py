"""What searching for unused parameters costs: the search, its all-reduce, and buckets that DDP then cannot sort."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lostflops.explain.advise.rules import ddp_settings
from lostflops.explain.advise.signs.traffic import traffic_of

PARAMETERS = 130


@pytest.fixture(autouse=True)
def all_are_all_reduces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp_settings, "select_collectives", lambda graph, op: True)


def case_with(search_ns: int, overlap: float | None, buckets: int = 3) -> Any:
    """A step of 1,000 ns; the map of 130 parameters is exposed for 2 ns of it, the buckets for 300 ns."""
    traffic = SimpleNamespace(
        size=np.array([4 * PARAMETERS, *[1_000_000] * buckets]),
        exposed=np.array([2, *[300 // buckets] * buckets]),
        by_hand=np.zeros(1 + buckets, np.bool_),
        in_backward=np.array([False, *[True] * buckets]),
        graph=None,
        of=lambda meetings: meetings,
        a_step=lambda rows: float(rows.sum()),
        attribute=lambda rows: {(0, "comm.transfer"): 2},
        examples=lambda rows: (),
    )
    return SimpleNamespace(
        answers={traffic_of: traffic},
        run=SimpleNamespace(rows=lambda query: [(0, search_ns)]),
        wall=1_000,
        lines={0: Counter({"idle.host": 500})},
        total=SimpleNamespace(steps={1, 2}),
        price=lambda change: None if overlap is None else SimpleNamespace(value=overlap),
    )


def test_a_long_search_is_found_by_its_time() -> None:
    found = ddp_settings._search(case_with(80, None), {"num_parameter_tensors": PARAMETERS})
    assert found.saving is not None
    assert (found.saving.value, found.suspected) == (pytest.approx(0.082), "")


def test_unsorted_buckets_are_suspected() -> None:
    """As in a job that saved 12% without the flag."""
    found = ddp_settings._search(case_with(4, 0.2), {"num_parameter_tensors": PARAMETERS})
    assert found.saving is not None
    assert found.saving.value == pytest.approx(0.006 + 0.2)
    assert "sort its buckets" in found.suspected


def test_unsorted_buckets_are_suspected_even_beside_a_long_search() -> None:
    found = ddp_settings._search(case_with(33, 0.2), {"num_parameter_tensors": PARAMETERS})
    assert found.saving is not None
    assert found.saving.value == pytest.approx(0.035 + 0.2)
    assert "sort its buckets" in found.suspected


def test_two_buckets_have_no_order_that_matters() -> None:
    found = ddp_settings._search(case_with(4, 0.2, buckets=2), {"num_parameter_tensors": PARAMETERS})
    assert found.saving is not None
    assert found.saving.value == pytest.approx(0.006)


def test_a_short_search_with_all_communication_hidden_costs_nothing_worth_naming() -> None:
    found = ddp_settings._search(case_with(4, -0.01), {"num_parameter_tensors": PARAMETERS})
    assert found.saving is not None
    assert found.saving.value == pytest.approx(0.006)
    assert found.suspected == ""
