"""What a PLACE is follows from its form and the names in it."""

from pathlib import Path

import pytest

from lostflops.core.errors import RunError, UsageError
from lostflops.fleet.kinds import BucketTable, LocalTable, NamedCatalog, RunFolder, find_kind, find_target, is_fleet
from lostflops.store.places import Address


def put_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    return folder


def test_addresses_and_catalogs_are_tables():
    assert (
        find_kind("s3://bucket/fleet/") == find_target("s3://bucket/fleet") == BucketTable(Address("s3://bucket/fleet"))
    )
    assert find_kind(Path("s3://bucket/fleet")) == BucketTable(Address("s3://bucket/fleet"))
    assert find_kind("catalog:prod") == find_target("catalog:prod") == NamedCatalog("prod")


@pytest.mark.parametrize("name", ["catalog:", "catalog:a/b", "catalog:a b"])
def test_a_catalog_has_a_name(name):
    with pytest.raises(UsageError, match="is not of the form catalog:NAME"):
        find_kind(name)


def test_a_folder_with_a_catalog_is_a_table(tmp_path):
    put_run(tmp_path / "a")
    (tmp_path / "catalog.db").touch()
    assert find_kind(tmp_path) == find_target(tmp_path) == LocalTable(tmp_path)


def test_what_is_served_is_a_run_or_a_fleet(tmp_path):
    run = put_run(tmp_path / "runs" / "a")
    assert is_fleet(tmp_path / "runs")
    assert not is_fleet(run)
    assert not is_fleet(tmp_path / "nothing")
    put_run(run / "inner")
    assert not is_fleet(run), "a run may contain anything"
    assert is_fleet(Path("catalog:prod"))
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "catalog.db").touch()
    assert is_fleet(tmp_path / "table")


def test_runs_are_found_one_and_two_levels_deep(tmp_path):
    runs = [put_run(tmp_path / name) for name in ("a", "team/b", "team/c")]
    put_run(tmp_path / "x/y/z")
    assert find_kind(tmp_path) == RunFolder(tmp_path, tuple(runs))


def test_neither_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(UsageError, match=r"has no runs, so it is not a fleet.*lostflops fleet add .* RUN"):
        find_kind(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        find_kind(tmp_path / "missing")


def test_a_run_is_not_a_fleet(tmp_path):
    run = put_run(tmp_path / "run")
    with pytest.raises(UsageError, match="is one run, not a fleet"):
        find_kind(run)


def test_runs_are_added_to_a_folder_that_is_empty_or_new(tmp_path):
    assert find_target(tmp_path) == LocalTable(tmp_path)
    assert find_target(tmp_path / "new") == LocalTable(tmp_path / "new")
    put_run(tmp_path / "runs" / "a")
    with pytest.raises(RunError, match="contains runs, which need not be added"):
        find_target(tmp_path / "runs")
    with pytest.raises(RunError, match="contains runs"):
        find_target(tmp_path / "runs" / "a")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    with pytest.raises(RunError, match=r"has other files \('letter.txt'\)"):
        find_target(tmp_path / "other")
    with pytest.raises(UsageError, match="its path contains '#'"):
        find_target(tmp_path / "a#b")
