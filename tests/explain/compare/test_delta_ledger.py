"""What changed between two synthetic jobs: one line by a known amount, a kernel's name, the size of a collective."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lostflops.explain.compare.compare_runs import compare_runs
from lostflops.explain.compare.where import round_to_sum
from lostflops.testing import Losses, SyntheticCluster, Truth, store

PLAIN = SyntheticCluster(ranks=2, steps=4)
MODEL = PLAIN.model
FRESH = replace(MODEL.kernels[1], name="fresh")
JOBS = {
    "plain": PLAIN,
    "allocating": replace(PLAIN, losses=Losses(alloc=300_000)),
    "renamed": replace(PLAIN, model=replace(MODEL, kernels=(MODEL.kernels[0], FRESH, MODEL.kernels[2]))),
    "bucketed": replace(PLAIN, model=replace(MODEL, buckets=4)),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Truth]]:
    folder = tmp_path_factory.mktemp("made")
    found = {}
    for name, job in JOBS.items():
        generated = job.generate()
        store(generated, folder / name)
        found[name] = folder / name, generated.truth
    return found


def compared(made: dict[str, tuple[Path, Truth]], other: str) -> dict[str, Any]:
    return compare_runs([made["plain"][0]], [made[other][0]]).to_json()


def per_step(truth: Truth) -> dict[str, float]:
    steps = sum(len(rank.steps) for rank in truth.ranks)
    return {line: ns / steps for line, ns in truth.lines.items()}


def test_the_line_that_grew_shows_by_how_much(made) -> None:
    """Each step allocates for 300 us, and the host needs 6.5 us to refill the device's queue."""
    *lines, step = compared(made, "allocating")["lines"]
    deltas = {row["line"]: row["delta_ns"] for row in lines if row["delta_ns"]}
    assert deltas == {"idle.alloc": 300_000, "idle.host": 6_500}
    assert step["delta_ns"] == 306_500
    assert lines[0]["of_difference"] == pytest.approx(300_000 / 306_500)
    assert step["of_difference"] == 1
    before, after = (per_step(made[name][1]) for name in ("plain", "allocating"))
    for row in lines:
        assert row["before_ns"] == pytest.approx(before[row["line"]], abs=1)
        assert row["after_ns"] == pytest.approx(after[row["line"]], abs=1)


@pytest.mark.parametrize("other", ["allocating", "renamed", "bucketed"])
def test_differences_sum_to_that_of_the_steps_to_the_ns(made, other: str) -> None:
    *lines, step = compared(made, other)["lines"]
    for key in ("before_ns", "after_ns", "delta_ns"):
        assert sum(row[key] for row in lines) == step[key]
    for key, name in (("before_ns", "plain"), ("after_ns", other)):
        assert step[key] == round(sum(per_step(made[name][1]).values())), "the rounded time of a mean step"
    assert step["delta_ns"] == step["after_ns"] - step["before_ns"]


def test_shares_of_almost_no_difference_are_left_out(made) -> None:
    found = compared(made, "renamed")
    assert abs(found["lines"][-1]["share"]) < 0.01
    assert {row["of_difference"] for row in found["lines"]} == {None}


def test_a_renamed_kernel_is_gone_and_new(made) -> None:
    """It runs forward and backward in each of four layers, for 10 us."""
    rows = {row["change"]: row for row in compared(made, "renamed")["kernels"]}
    assert set(rows) == {"new", "gone"}
    new, gone = rows["new"], rows["gone"]
    assert new["name"] == "fresh"
    assert "elementwise" in gone["name"]
    assert (new["before_calls"], new["before_ns"], new["after_calls"]) == (0, 0, 8)
    assert (gone["before_calls"], gone["after_calls"], gone["after_ns"]) == (8, 0, 0)
    assert new["delta_ns"] == pytest.approx(80_000, rel=0.01)
    assert gone["delta_ns"] == pytest.approx(-80_000, rel=0.01)


def test_the_largest_difference_is_first(made) -> None:
    for table in ("kernels", "collective_sizes"):
        sizes = [abs(row["delta_ns"]) for row in compared(made, "bucketed")[table]]
        assert sizes == sorted(sizes, reverse=True)


def test_other_buckets_are_other_collectives(made) -> None:
    """Four buckets of half the bytes in place of two, for the same bytes in all."""
    found = compared(made, "bucketed")
    (whole,) = found["collectives"]
    assert (whole["collective"], whole["before_calls"], whole["after_calls"]) == ("all_reduce of 2 ranks", 2, 4)
    assert whole["before_bytes"] == whole["after_bytes"] == MODEL.layers * MODEL.gradient_bytes
    by_size = {(row["op"], row["ranks"], row["bytes"]): row for row in found["collective_sizes"]}
    gone = by_size["all_reduce", 2, 2 * MODEL.gradient_bytes]
    new = by_size["all_reduce", 2, MODEL.gradient_bytes]
    assert (gone["change"], gone["before_calls"], gone["after_calls"]) == ("gone", 2, 0)
    assert (new["change"], new["before_calls"], new["after_calls"]) == ("new", 0, 4)


def test_rounded_parts_keep_their_sum() -> None:
    parts = {"a": 0.4, "b": 0.4, "c": 0.4, "d": 10.0}
    assert sum(round_to_sum(parts).values()) == round(sum(parts.values()))
    assert all(abs(round_to_sum(parts)[name] - parts[name]) < 1 for name in parts)
