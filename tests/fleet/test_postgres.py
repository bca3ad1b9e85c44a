"""A fleet whose catalog is a real PostgreSQL, and whose files are objects: what a team with a database would use."""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from made_summaries import make_summary
from tests.fleet.test_writers import check_writers

pytest.importorskip("pyiceberg", reason="the extra fleet is not installed")
pytest.importorskip("psycopg2", reason="needs pip install psycopg2-binary")

import sqlalchemy
from pyiceberg.utils.config import Config

from lostflops.core.errors import BrokenRun, RunError
from lostflops.fleet.catalogs import load_table
from lostflops.fleet.changes import add_runs, compact, expire, remove_runs
from lostflops.fleet.kinds import NamedCatalog
from lostflops.fleet.place import open_fleet

PROGRAMS = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None) or (
    Path(found).parent if (found := shutil.which("initdb")) else None
)
PLACE = "catalog:team"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAMS is None, reason="needs PostgreSQL: apt-get install postgresql"),
]


def account() -> dict[str, str]:
    """PostgreSQL refuses to run as root."""
    return {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """The folder of a server's socket; it listens on no port."""
    with tempfile.TemporaryDirectory(prefix="lostflops-pg-") as made:
        folder = Path(made)
        if os.geteuid() == 0:
            shutil.chown(folder, **account())
        data = str(folder / "data")
        subprocess.run(
            [PROGRAMS / "initdb", "-D", data, "-U", "fleet", "-A", "trust", "-N"],
            check=True, capture_output=True, cwd=folder, **account(),
        )  # fmt: skip
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
        with subprocess.Popen(
            [PROGRAMS / "postgres", "-D", data, *options], stderr=subprocess.DEVNULL, cwd=folder, **account()
        ) as process:
            try:
                ready = [PROGRAMS / "pg_isready", "-h", folder, "-t", "1"]
                assert any(not subprocess.run(ready, check=False, capture_output=True).returncode for _ in range(30))
                yield folder
            finally:
                process.terminate()


@pytest.fixture
def place(server: Path, object_store, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalog in a database of its own, with its files in a bucket of its own."""
    database = object_store.bucket.replace("-", "_")
    subprocess.run([PROGRAMS / "createdb", "-h", server, "-U", "fleet", database], check=True, capture_output=True)
    settings = {
        "TYPE": "sql",
        "URI": f"postgresql+psycopg2://fleet@/{database}?host={server}",
        "WAREHOUSE": f"s3://{object_store.bucket}/fleet",
        "S3__ENDPOINT": object_store.endpoint,
        "S3__ACCESS_KEY_ID": "key-of-tests",
        "S3__SECRET_ACCESS_KEY": "secret",
        "S3__REGION": "us-east-1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__TEAM__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it reads the environment when it is imported
    engine = functools.partial(sqlalchemy.create_engine, poolclass=sqlalchemy.NullPool)
    monkeypatch.setattr("pyiceberg.catalog.sql.create_engine", engine)  # leaves no connection open
    return PLACE


def read_runs() -> list[str]:
    return sorted(summary.run for summary in open_fleet(PLACE, None).summaries())


def test_runs_are_added_replaced_merged_and_removed(place: str) -> None:
    with pytest.raises(RunError, match="catalog:team has no runs yet"):
        read_runs()
    made = [make_summary(f"run{number}", start=number, stop=86_400 * 10**9 * number + 1) for number in range(6)]
    for summary in made:
        add_runs(place, [summary])
    add_runs(place, [make_summary("run3", name="again", start=3, stop=86_400 * 10**9 * 3 + 1)])
    found = {summary.run: summary for summary in open_fleet(place, None).summaries()}
    assert {run: found[run].name for run in ("run2", "run3")} == {"run2": made[2].name, "run3": "again"}
    assert [found[summary.run] for summary in made if summary.run != "run3"] == [*made[:3], *made[4:]]
    assert compact(place) == 6
    assert remove_runs(place, datetime.fromtimestamp(86_400 * 2, UTC)) == 2
    assert expire(place, datetime.now(UTC)) > 1
    assert len(load_table(NamedCatalog("team")).metadata.snapshots) == 1
    assert read_runs() == ["run2", "run3", "run4", "run5"]


def test_writers_that_are_killed_lose_nothing(place: str) -> None:
    check_writers(place, writers=4, runs=6, kills=2)


def test_a_server_that_does_not_answer_is_an_error_in_words(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__TEAM__URI", "postgresql+psycopg2://fleet@/x?host=/nowhere")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    with pytest.raises(BrokenRun, match=r"the fleet catalog:team cannot be used: .*/nowhere"):
        add_runs(place, [make_summary("a")])
