from pathlib import Path
from typing import Any

import pytest

import lostflops
from lostflops.explain.analyze.quality import _BY_NAME, MOST_RANKS, quality
from memory_run import MemoryRun


def judge(
    *stats: tuple[str, str, int], events: int = 1000, kernels: int = 0, collectives: int = 0, **rank: str
) -> tuple[str, str]:
    """Verdict and reasons of a single rank of 1000 events and a file of 1000 bytes."""
    run = MemoryRun(
        ranks=[{"rank": 0, "events": events, "source_bytes": 1000, **rank}],
        events=[{"rank": 0, "kind": "kernel"}] * kernels,
        collectives=[{"rank": 0}] * collectives,
        stats=[{"rank": 0, "what": what, "effect": effect, "count": count} for what, effect, count in stats],
    )
    for block in quality(run).blocks:
        if block.name == "doubtful_ranks":
            [(_, verdict, reasons)] = block.rows
            return verdict, reasons
    return "good", ""


def test_a_rank_without_observations_is_good() -> None:
    assert judge() == ("good", "")


def test_a_rank_without_events_is_poor() -> None:
    assert judge(events=0) == ("poor", "no timed events")


def test_a_rank_with_only_a_flight_recorder_dump_is_usable() -> None:
    assert judge(events=0, formats="flight_recorder") == ("usable", "no timed events")


def test_the_unread_share_of_a_compressed_file_is_unknown() -> None:
    assert judge(("bytes_unread", "missing", 5000), source="a.json.gz") == ("usable", "bytes_unread: 5,000")


@pytest.mark.parametrize(
    ("stat", "sizes", "verdict"),
    [
        (("truncated", "missing", 1), {}, "usable"),
        (("truncated", "note", 1), {}, "usable"),
        (("bytes_unread", "missing", 1), {}, "usable"),
        (("bytes_unread", "missing", 500), {}, "usable"),
        (("bytes_unread", "missing", 501), {}, "poor"),
        (("rank_assigned", "guessed", 1), {}, "usable"),
        (("missing_steps", "missing", 1), {}, "usable"),
        (("no_steps", "missing", 1), {}, "usable"),
        (("repeated_steps", "dropped", 500), {}, "usable"),
        (("unreadable_header", "dropped", 1), {}, "usable"),
        (("flight_entries_malformed", "dropped", 500), {}, "usable"),
        (("flight_fields_unreadable", "dropped", 500), {}, "usable"),
        (("flight_groups_unknown", "missing", 500), {}, "good"),
        (("flight_fields_missing", "missing", 500), {}, "good"),
        (("kernels_without_launch", "missing", 5), {"kernels": 100}, "good"),
        (("kernels_without_launch", "missing", 6), {"kernels": 100}, "usable"),
        (("collectives_without_metadata", "guessed", 5), {"collectives": 100}, "good"),
        (("collectives_without_metadata", "guessed", 6), {"collectives": 100}, "usable"),
        (("overlapping_events", "note", 10), {}, "good"),
        (("overlapping_events", "note", 11), {}, "usable"),
        (("shapes_dropped", "dropped", 900), {}, "good"),
        (("comms_without_kernel", "missing", 900), {}, "good"),
        (("unreadable_events", "dropped", 1), {}, "usable"),
        (("unreadable_events", "dropped", 111), {}, "usable"),
        (("unreadable_events", "dropped", 112), {}, "poor"),
        (("out_of_range_times", "dropped", 1), {}, "usable"),
        (("negative_durations", "repaired", 10), {}, "good"),
        (("negative_durations", "repaired", 11), {}, "usable"),
        (("of_a_later_version", "guessed", 11), {}, "usable"),
        (("of_a_later_version", "note", 10**6), {}, "good"),
        (("unreadable_events", "dropped", 0), {}, "good"),
    ],
)
def test_thresholds(stat: tuple[str, str, int], sizes: dict[str, int], verdict: str) -> None:
    assert judge(stat, **sizes)[0] == verdict


@pytest.mark.parametrize("what", ["marks_dropped", "network_missing"])
def test_marks_and_traffic_that_are_missing_do_not_make_times_doubtful(what: str) -> None:
    assert judge((what, "dropped", 1000)) == ("good", "")


def test_reasons_start_with_the_worst() -> None:
    verdict, reasons = judge(("missing_steps", "missing", 1), ("bytes_unread", "missing", 600))
    assert verdict == "poor"
    assert reasons == "bytes_unread: 600 (60.0%); missing_steps: 1"


def test_counts_of_two_formats_add_up() -> None:
    assert judge(("negative_durations", "repaired", 6), ("negative_durations", "repaired", 6))[0] == "usable"


def test_many_ranks_show_the_worst_and_count_all() -> None:
    ranks: list[dict[str, Any]] = [{"rank": rank, "events": 1000 if rank else 0} for rank in range(40)]
    stats = [{"rank": rank, "what": "unreadable_events", "effect": "dropped", "count": rank} for rank in range(20, 40)]
    result = quality(MemoryRun(ranks=ranks, stats=stats))
    data = result.to_json()
    assert result.verdict == "Data quality of 40 ranks: 19 good, 20 usable with gaps, 1 poor."
    assert data["verdicts"] == {"good": 19, "usable": 20, "poor": 1}
    assert [row["rank"] for row in data["doubtful_ranks"]] == [0, *range(39, 30, -1)]
    assert result.blocks[1].left_out == 21 - MOST_RANKS


def test_an_empty_run() -> None:
    assert quality(MemoryRun()).verdict == "The run has no ranks."


def test_every_judged_name_is_one_that_ingest_or_the_collector_writes() -> None:
    package = Path(lostflops.__file__).parent
    files = [path for folder in ("ingest", "collect") for path in (package / folder).rglob("*.py")]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    assert [name for name in _BY_NAME if f'"{name}"' not in source] == []
