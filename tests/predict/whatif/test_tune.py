"""A curve with its lowest point known: latency falls with the size of buckets, and what starts late rises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from lostflops.core.errors import AlreadySo, NotApplicable, UsageError
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import LaneKind
from lostflops.predict.whatif.baseline import Baseline, baseline
from lostflops.predict.whatif.change import Change, Edited
from lostflops.predict.whatif.tune import tune_bucket
from made_whatif import made, of
from memory_run import MemoryRun

SIZES = ("1", "2", "5", "10", "25", "50", "100", "200")


@pytest.fixture(scope="module")
def start() -> Iterator[Baseline]:
    """A step computes 80, then exchanges for 20."""
    with MemoryRun() as run:
        yield baseline(run, build=of(made((100, 100, 100))))


def bucket(took: dict[str, int]) -> tuple[Change, ...]:
    """The exchange takes what is said of each size, and others do not apply."""

    def apply(graph, value, facts) -> Edited:
        if value not in took:
            raise NotApplicable("no such bucket")
        if not took[value]:
            raise AlreadySo("so it is")
        return Edited(
            graph=retime_graph(graph, transfer=np.full(len(graph.meetings), took[value])), doubt=0.1, notes=("as told",)
        )

    return (
        Change(
            name="bucket_mb",
            form="bucket_mb=MB",
            about="",
            cost="memory",
            how=lambda value: f"bucket_cap_mb={value}",
            apply=apply,
        ),
    )


def test_the_best_size_and_those_as_good(start: Baseline) -> None:
    took = dict(zip(SIZES, (30, 20, 12, 5, 4, 5, 9, 18), strict=True))
    told = tune_bucket(start, SIZES[::-1], known=bucket(took)).to_json()
    assert told["schema"] == "lostflops.tune/1"
    best = told["best"]
    assert (best["bucket_mb"], best["predicted_ns"], best["how"]) == (25, 84, "bucket_cap_mb=25")
    assert best["gain"] == pytest.approx(0.16)
    assert best["as_good"] == [10, 50]
    assert best["interval"][0] < 84 < best["interval"][1] < 100
    assert [row["predicted_ns"] for row in told["sizes"]] == [110, 100, 92, 85, 84, 85, 89, 98]
    assert [row["as_good"] for row in told["sizes"]] == [False, False, False, True, True, True, False, False]
    assert told["curve"][0]["bucket_mb"] == [float(size) for size in SIZES]
    assert "Buckets of 25 MiB are best" in told["verdict"]
    assert "10 to 50 MiB are equally good." in told["verdict"]
    assert "as told" in told["notes"]


def test_no_size_is_better_than_what_is_there(start: Baseline) -> None:
    told = tune_bucket(start, ("5", "25"), known=bucket({"5": 19, "25": 20}))
    assert told.verdict.startswith("Keep the current buckets: no size shortens the measured step of ")
    assert "by more than 2.0%" in told.verdict


def test_the_size_that_the_run_has_stays_what_was_measured(start: Baseline) -> None:
    told = tune_bucket(start, ("5", "25"), known=bucket({"5": 9, "25": 0})).to_json()
    assert [row["predicted_ns"] for row in told["sizes"]] == [89, 100]


def test_equal_sizes_the_smallest_is_taken(start: Baseline) -> None:
    told = tune_bucket(start, ("50", "25", "5"), known=bucket({"5": 9, "25": 4, "50": 4})).to_json()
    assert told["best"]["bucket_mb"] == 25


def test_sizes_that_do_not_apply_are_said(start: Baseline) -> None:
    told = tune_bucket(start, ("1", "2", "5"), known=bucket({"5": 4})).to_json()
    assert [row["bucket_mb"] for row in told["sizes"]] == [5]
    assert "No prediction for 1, 2 MiB: no such bucket." in told["notes"]
    assert "Buckets of 5 MiB are best of the 1 that can be predicted" in told["verdict"]
    with pytest.raises(NotApplicable, match="no such bucket"):
        tune_bucket(start, ("1", "2"), known=bucket({}))


def test_a_size_that_is_none(start: Baseline) -> None:
    with pytest.raises(UsageError, match="bucket_mb=x: give a positive number"):
        tune_bucket(start, ("5", "x"), known=bucket({"5": 4}))


def test_reductions_are_told_by_size_and_not_as_notes(start: Baseline) -> None:
    (plain,) = bucket({"5": 4, "25": 9})

    def apply(graph, value, facts) -> Edited:
        said = (f"2 reductions per step become {25 / float(value):g}.", "as told")
        extra = {"reductions_before": 2.0, "reductions": 25 / float(value)}
        return replace(plain.apply(graph, value, facts), notes=said, extra=extra)

    told = tune_bucket(start, ("5", "25"), known=(replace(plain, apply=apply),)).to_json()
    assert [row["reductions"] for row in told["sizes"]] == [5, 1]
    assert told["notes"][1:] == ["The run makes 2 reductions per step.", "as told"]


def test_sizes_on_hosts_differ_by_more_before_they_count(start: Baseline) -> None:
    """Runs on cores differ by 5%: 88 is as good as 84 there, and not on a device."""
    lanes = replace(start.graph.lanes, kind=np.full_like(start.graph.lanes.kind, LaneKind.HOST))
    on_hosts = replace(start, schedule=replace(start.schedule, graph=replace(start.graph, lanes=lanes)))
    took = bucket({"5": 8, "25": 4})
    assert tune_bucket(start, ("5", "25"), known=took).to_json()["best"]["as_good"] == [25, 25]
    assert tune_bucket(on_hosts, ("5", "25"), known=took).to_json()["best"]["as_good"] == [5, 25]
