"""Sizes of all-to-alls tell how many tokens each rank gets, by step and layer."""

from __future__ import annotations

import time

import numpy as np
import pytest

from lostflops.account.align.expert_loads import ExpertLoads, expert_loads

HIDDEN = 256
"""Bytes of a token."""
TOKENS = np.array([100, 100, 100, 100])
"""Of each rank."""


class Recorded:
    """Calls that a run recorded: numbers of tokens that ranks sent and got."""

    def __init__(self, *steps: list[tuple[np.ndarray, np.ndarray]]) -> None:
        rows = [
            (rank, "0@0-3", call, step, int(sent[rank]), int(got[rank]))
            for call, (step, sent, got) in enumerate((s, *sizes) for s, calls in enumerate(steps) for sizes in calls)
            for rank in range(len(sent))
        ]
        names = ("rank", "group_id", "call", "step", "bytes_in", "bytes_out")
        self._columns = {name: np.array([row[at] for row in rows]) for at, name in enumerate(names)}

    def columns(self, query: str) -> dict[str, np.ndarray]:
        wanted = "from collectives" in query
        return {name: values if wanted else values[:0] for name, values in self._columns.items()}

    def rows(self, query: str) -> list[tuple[int, int, str, int, int]]:
        """The event of a call has its number, plus 1,000."""
        assert "from collectives" in query
        own = (self._columns[name].tolist() for name in ("rank", "call", "group_id", "step"))
        return [(rank, 1_000 + call, group, call, step) for rank, call, group, step in zip(*own, strict=True)]


def there(load: list[int], size: int = HIDDEN) -> tuple[np.ndarray, np.ndarray]:
    return size * TOKENS, size * np.array(load)


def back(load: list[int], size: int = HIDDEN) -> tuple[np.ndarray, np.ndarray]:
    return size * np.array(load), size * TOKENS


def counts() -> tuple[np.ndarray, np.ndarray]:
    return np.full(4, 32), np.full(4, 32)


def read(*steps: list[tuple[np.ndarray, np.ndarray]]) -> ExpertLoads | None:
    return expert_loads(Recorded(*steps))  # type: ignore[arg-type]


A, B, C = [70, 70, 190, 70], [100, 101, 99, 100], [110, 90, 90, 110]


def places(loads: ExpertLoads | None) -> list[tuple[int, int]]:
    assert loads is not None
    return [(trip.layer, trip.turn) for trip in loads.trips]


def test_tokens_go_to_experts_and_back_in_both_passes() -> None:
    loads = read([counts(), there(A), back(A), counts(), there(B), back(B), there(B), back(B), there(A), back(A)])
    assert places(loads) == [(0, 0), (1, 0), (1, 1), (0, 1)]
    assert loads is not None
    assert (loads.ranks, loads.layers) == ((0, 1, 2, 3), 2)
    assert loads.shares(0).tolist() == [[0.7, 0.7, 1.9, 0.7]]
    assert [trip.call for trip in loads.trips] == [1, 4, 6, 8]
    assert {event for rank, event in loads.sent_by if rank == 3} == {1_001, 1_004, 1_006, 1_008}


def test_the_backward_pass_of_the_first_layer_may_go_there_alone() -> None:
    assert places(read([there(A), back(A), there(B), back(B), there(B), back(B), there(A)])) == [
        (0, 0),
        (1, 0),
        (1, 1),
        (0, 1),
    ]


def test_a_new_load_after_a_backward_pass_begins_the_next_microbatch() -> None:
    passes = [there(A), back(A), there(A), back(A), there(C), back(C), there(C), back(C)]
    assert places(read(passes)) == [(0, 0), (0, 1), (0, 0), (0, 1)]


def test_scales_and_smaller_types_travel_with_the_tokens() -> None:
    calls = [there(A, 128), there(A, 4), back(A, 256), there(B, 128), there(B, 4), back(B, 256)]
    assert places(read(calls)) == [(0, 0), (1, 0)]


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([], id="no exchange"),
        pytest.param([counts()], id="only counts"),
        pytest.param([there(A), there(B)], id="nothing comes back"),
        pytest.param([(np.zeros(4), np.zeros(4))] * 2, id="nothing moves"),
    ],
)
def test_other_exchanges_are_not_those_of_experts(calls: list[tuple[np.ndarray, np.ndarray]]) -> None:
    assert read(calls) is None


@pytest.mark.parametrize("missing", range(8))
def test_a_step_that_a_rank_did_not_record_as_a_whole_does_not_count(missing: int) -> None:
    recorded = Recorded([there(A), back(A)], [there(C), back(C)], [there(B), back(B)], [there(A), back(A)])
    kept = ~((recorded._columns["call"] == missing) & (recorded._columns["rank"] == 3))
    recorded._columns = {name: values[kept] for name, values in recorded._columns.items()}
    loads = expert_loads(recorded)  # type: ignore[arg-type]
    assert loads is not None
    assert [trip.step for trip in loads.trips] == [step for step in range(4) if step != missing // 2]


def test_experts_begin_after_the_last_call_that_brings_something() -> None:
    loads = read([there(A, 128), there(A, 4), back(A, 256)])
    assert loads is not None
    assert [trip.call for trip in loads.trips] == [1]


def test_even_exchanges_are_read_in_time() -> None:
    """Each was compared with all that follow: 4,000 took minutes."""
    even = [(HIDDEN * TOKENS, HIDDEN * TOKENS)] * 4_000
    began = time.process_time()
    read(even)
    assert time.process_time() - began < 5


def test_the_most_uneven_group_is_shown() -> None:
    """Ranks 0 to 3 exchange twice as much, evenly; ranks 4 to 7 do not."""
    even, uneven = Recorded([there(C, 512), back(C, 512)]), Recorded([there(A), back(A)])
    uneven._columns["rank"] += 4
    uneven._columns["group_id"] = np.array(["1@4-7"] * 8)
    uneven._columns = {name: np.concatenate((even._columns[name], values)) for name, values in uneven._columns.items()}
    loads = expert_loads(uneven)  # type: ignore[arg-type]
    assert loads is not None
    assert loads.ranks == (4, 5, 6, 7)
