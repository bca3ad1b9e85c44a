"""The page of two runs: its parts, what it says of several runs, and of runs that lack something."""

import json
from pathlib import Path

import pytest

from lostflops.core.errors import UsageError
from lostflops.core.results import Field, Findings, Strips, Table
from lostflops.ingest import ingest
from lostflops.show.pages.comparison import SECTIONS, comparison_page, describe_changes
from lostflops.show.report.view import View
from lostflops.testing import Straggler, SyntheticCluster, store
from made_nsys import Export
from made_timed_runs import noisy, recorded


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clusters")
    for name, late in (("even", ()), ("late", (Straggler(1, "slow_kernels", factor=1.5),))):
        store(SyntheticCluster(ranks=3, stragglers=late).generate(), folder / name)
    return folder


def test_all_parts_are_there_in_order(clusters: Path) -> None:
    page = comparison_page([clusters / "even"], [clusters / "late"])
    assert page.title == "even and late"
    assert [result.name for result in page.results] == list(SECTIONS)
    assert not page.missing
    by_name = {result.name: result for result in page.results}
    assert by_name["diff"].verdict.startswith("B is slower")
    assert [block.name for block in by_name["diff"].blocks] == ["step", "lines", "compared_steps"]
    assert isinstance(by_name["aligned_steps"].blocks[0], Strips)
    assert "all_reduce of 3 ranks, +" in by_name["changed_collectives"].verdict
    assert by_name["comparable"].verdict == "No recorded setting differs between A and B."


def test_findings_are_those_of_each_run_without_links_to_a_timeline(clusters: Path) -> None:
    page = comparison_page([clusters / "even"], [clusters / "late"])
    by_name = {result.name: result for result in page.results}
    first = by_name["findings_b"].blocks[0]
    assert isinstance(first, Findings)
    assert [one.cause for one in first.items][:1] == ["straggler"]
    assert len(first.items) <= 3
    assert not any(one.evidence for one in first.items)
    assert not any(one.prediction.change for one in first.items if one.prediction), "it would be tried on run A"
    assert by_name["findings_a"].findings == ()
    assert by_name["findings_b"].next_command == "lostflops diagnose late"


def test_of_several_runs_the_first_is_drawn_and_named(tmp_path: Path, clusters: Path) -> None:
    store(SyntheticCluster(ranks=3, seed=7).generate(), tmp_path / "again")
    page = comparison_page([clusters / "even", tmp_path / "again"], [clusters / "late"])
    by_name = {result.name: result for result in page.results}
    assert page.title == "even (+1) and late"
    assert by_name["diff"].step.runs == (2, 1)
    said = "Of the first run of each side with several: even."
    assert [name for name, result in by_name.items() if said in result.notes] == ["aligned_steps", "findings_a"]


def test_the_page_does_not_name_folders_of_this_machine(clusters: Path) -> None:
    page = comparison_page([clusters / "even"], [clusters / "late"])
    assert str(clusters) not in json.dumps(View().page(page))


def test_timed_runs_without_a_trace(tmp_path: Path) -> None:
    for number, (name, level) in enumerate((("old", 10), ("new", 20))):
        recorded(tmp_path / name, noisy(number, level=level), start=number * 10**11)
    page = comparison_page([tmp_path / "old"], [tmp_path / "new"])
    by_name = {result.name: result for result in page.results}
    assert by_name["diff"].verdict.startswith("B is slower")
    drawn = by_name["diff"].compared_steps
    assert [series.name.partition(":")[0] for series in drawn.series] == ["A", "A", "B", "B"]
    assert len(drawn.series[0].points) == 60
    assert by_name["aligned_steps"].verdict.startswith("Run A has no profiled step")
    assert "changed_kernels" not in by_name


def test_recordings_without_steps(tmp_path: Path) -> None:
    for name, took in (("old", 300), ("new", 500)):
        export = Export()
        for at in range(1_000, 11_000, 1_000):
            export.launched("gemm<int>", at, at + 10, at + 10 + took)
        ingest([export.write(tmp_path / f"{name}.sqlite")], tmp_path / name, workers=1)
    page = comparison_page([tmp_path / "old"], [tmp_path / "new"])
    by_name = {result.name: result for result in page.results}
    assert by_name["diff"].verdict.startswith("Inconclusive: neither side marks steps")
    assert by_name["changed_kernels"].verdict.endswith("per second and rank.")
    assert by_name["aligned_steps"].blocks == ()


def test_runs_that_cannot_be_compared_give_no_page(clusters: Path, tmp_path: Path) -> None:
    store(SyntheticCluster(ranks=2).generate(), tmp_path / "other")
    with pytest.raises(UsageError, match="different jobs: world size"):
        comparison_page([clusters / "even"], [tmp_path / "other"])
    page = comparison_page([clusters / "even"], [tmp_path / "other"], anyway=True)
    by_name = {result.name: result for result in page.results}
    assert by_name["comparable"].verdict == "These are different jobs: world size differs."
    assert [name for name, _ in by_name["aligned_steps"].rows.rows][::2] == ["A rank 0", "A rank 1"]


def test_changes_in_a_sentence() -> None:
    fields = (Field("short"), Field("change"), Field("delta_ns", "ns"))
    rows = (("gemm", "gone", -2_000_000), ("fresh", "new", 1_500_000), ("add", "longer", 1_000))
    said = describe_changes(Table("kernels", "", fields, rows, left_out=4), "per step")
    assert said == "7 changed (1 new, 1 gone); the largest difference is gemm, -2.00 ms per step and rank."
    assert describe_changes(Table("kernels", "", fields, ()), "per step").startswith("Nothing changed")
