"""`lostflops diff` of recordings that mark no steps: what changed, and no verdict."""

import json

import pytest

from lostflops.ingest import ingest
from made_nsys import Export, small_export


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Ten kernels a run, each 300 ns in `old` and 500 ns in `new`; `stepped` has steps."""
    folder = tmp_path_factory.mktemp("made")
    for name, took in (("old", 300), ("new", 500)):
        export = Export()
        for at in range(1_000, 11_000, 1_000):
            export.launched("gemm<int>", at, at + 10, at + 10 + took)
        ingest([export.write(folder / f"{name}.sqlite")], folder / name, workers=1)
    ingest([small_export().write(folder / "stepped.sqlite")], folder / "stepped", workers=1)
    return folder


def test_lines_and_kernels_are_per_second_of_recording(made, lostflops):
    told = json.loads(lostflops("diff", made / "old", made / "new", "--json").out)
    assert (told["answer"], told["steps_from"]) == ("inconclusive", "none")
    compute = next(row for row in told["lines"] if row["line"] == "compute")
    assert compute["before_ns"] == pytest.approx(1e9 * 10 * 300 / 9_300, abs=1)
    assert compute["after_ns"] == pytest.approx(1e9 * 10 * 500 / 9_500, abs=1)
    *lines, second = told["lines"]
    for key in ("before_ns", "after_ns"):
        assert sum(row[key] for row in lines) == second[key] == 1_000_000_000, "rounded lines still sum to a second"
    assert [(row["name"], row["change"]) for row in told["kernels"]] == [("gemm<int>", "longer")]


def test_people_read_why_there_is_no_verdict(made, lostflops):
    done = lostflops("diff", made / "old", made / "new")
    text = " ".join(done.out.split())
    assert done.code == 0
    verdict = "Inconclusive: neither side marks steps, so there is no step time to compare. Ranks compute for 52.6%"
    assert f"{verdict} of the recorded time" in text
    assert "an NVTX range such as `step 12`" in text


def test_no_line_is_said_to_have_moved_where_none_did(made, lostflops):
    text = " ".join(lostflops("diff", made / "old", made / "old").out.split())
    assert "Ranks compute for 32.3% of the recorded time on both, and no line changed." in text


def test_a_side_with_steps_is_not_compared_with_one_without(made, lostflops):
    done = lostflops("diff", made / "old", made / "stepped")
    assert done.code == 2
    assert "has no step that can be compared" in done.err
