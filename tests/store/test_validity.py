"""Values that somebody put into the files of a run: an error in words, or an answer; never a traceback."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import lostflops as lf
from lostflops.account.ledger.answers import total_of
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.scope import scope
from lostflops.core.errors import BrokenRun, LostflopsError
from lostflops.ingest.timeline.event_kinds import KINDS
from lostflops.store import validity
from lostflops.store.manifest import load, save
from lostflops.store.run import Run
from lostflops.store.tables import TABLES, table
from lostflops.testing import SyntheticCluster
from lostflops.testing.store_run import store
from store.forged import forge

VERBS = (
    *("report", "diagnose", "ranks", "comm", "kernels", "memory", "steps", "pipeline", "flame", "info", "quality"),
    *("path", "whatif"),
)
VALUES = {
    "INTEGER": ("null", "-1", "2147483647", "-2147483648", "0"),
    "BIGINT": ("null", "-1", "9223372036854775807", "-9223372036854775808", "0", "2305843009213693952"),
    "VARCHAR": ("null", "''", "repeat('x', 5000)", "'[1'", "'{}'", "'null'"),
    "DOUBLE": ("null", "'nan'::double", "'inf'::double", "-1e300"),
    "BOOLEAN": ("null", "true", "false"),
    "BLOB": ("null", "''::blob", "'abc'::blob"),
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = store(SyntheticCluster(ranks=2, memory=True).generate(), tmp_path_factory.mktemp("jobs") / "run")
    with lf.open(folder) as opened:
        opened.diagnose()
    return folder


@pytest.fixture
def run(intact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that came from somebody else: this machine has no record of having written it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(intact, tmp_path / "run"))


def ask_everything(folder: Path) -> None:
    """Ask every verb; errors of our own are answers too."""
    try:
        opened = lf.open(folder)
    except LostflopsError:
        return
    with opened:
        for verb in VERBS:
            try:
                getattr(opened, verb)()
            except LostflopsError:
                continue


@pytest.mark.parametrize(
    ("name", "column", "value", "said"),
    [
        ("events", "dur", "-1", "an impossible dur"),
        ("events", "dur", "9223372036854775807", "an impossible dur"),
        ("events", "start", "-9223372036854775808", "an impossible start"),
        ("events", "name", "'x'::blob", "type BLOB instead of VARCHAR"),
        ("events", "kind", "'magic'", "an unknown kind"),
        ("events", "lane", "2000000000", "an impossible lane"),
        ("events", "rank", "2000000000", "an impossible rank"),
        ("ranks", "world_size", "2100000000", "an impossible world_size"),
        ("steps", "stop", "start - 1", "stop before start"),
    ],
)
@pytest.mark.few(4)
def test_impossible_values_are_named(run: Path, name: str, column: str, value: str, said: str) -> None:
    kind = next(one.type for one in table(name).columns if one.name == column)
    forge(run, name, **{column: value if "blob" in value else f"CAST({value} AS {kind})"})
    with pytest.raises(BrokenRun, match=said):
        Run.open(run)


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("ledger", "ns", "ns + 1"),
        ("ledger", "line", "'magic'"),
        ("accounts", "notes", "'[NaN]'"),
        ("accounts", "wall", "null::bigint"),
        ("overlap", "running", "'[5]'"),
        ("diagnosis", "document", "'{}'"),
        ("timeline", "lines", "'a'::blob"),
        ("kernels", "occupancy", "'nan'::double"),
        ("kernels", "name", "'x'::blob"),
    ],
)
@pytest.mark.few(3)
def test_changed_accounts_are_computed_again(intact: Path, run: Path, name: str, column: str, value: str) -> None:
    """Derived tables of another version, or that somebody changed, give neither an error nor a wrong number."""
    forge(run, name, **{column: value})
    with Run.open(intact) as before, Run.open(run) as after:
        assert ledger_of(after) == ledger_of(before)
    with lf.open(intact) as one, lf.open(run) as other:
        assert other.report().to_json() == one.report().to_json()


def ledger_of(run: Run) -> dict[str, int]:
    return dict(total_of(run, scope(run, None)).lines)


def test_run_without_sources_is_refused(run: Path) -> None:
    manifest = load(run)
    manifest.sources = []
    save(run, manifest)
    with pytest.raises(BrokenRun, match="no ranks"):
        Run.open(run)


def test_rows_are_looked_at_once(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []

    def find_nothing(tables: object, *_: object) -> Iterator[str]:
        looked.append(tables)
        return iter(())

    monkeypatch.setattr(validity, "_find_faults", find_nothing)
    for expected in (True, False):
        looked.clear()
        Run.open(run).close()
        assert bool(looked) is expected
    forge(run, "events", dur="dur")
    Run.open(run).close()
    assert looked, "a changed run is looked at again"


def test_marks_of_runs_in_use_are_kept_and_old_ones_are_removed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()

    def marks_after(days: int) -> list[str]:
        monkeypatch.setattr(validity.time, "time", lambda: now + days * 86_400)
        Run.open(run).close()
        return sorted(path.name for path in (tmp_path / "cache/lostflops/checked").iterdir())

    first, second = marks_after(0), marks_after(90)
    assert (len(first), len(second)) == (1, 2)
    assert marks_after(180)[0] == second[1], "opened in each period: the mark moved along"
    assert len(marks_after(900)) == 1


def test_step_without_events_has_no_path(run: Path) -> None:
    forge(run, "events", step="null::integer")
    with lf.open(run) as opened, pytest.raises(LostflopsError, match="no step"):
        opened.path()


def test_collectives_whose_events_lost_their_step_leave_an_answer(run: Path) -> None:
    """Some members of a meeting are in no step, so what-ifs that divide reductions keep the meeting."""
    forge(run, "events", step="CASE WHEN (event * 7919 + rank * 104729) % 97 < 48 THEN step END")
    with lf.open(run) as opened:
        assert opened.whatif().verdict


def forgeries(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Every column of every table with every strange value of its type, and with half of its values gone."""
    files = load(folder).files
    for declared in TABLES:
        for column in declared.columns if files.get(declared.name) else ():
            for value in VALUES[column.type]:
                yield declared.name, column.name, f"CAST({value} AS {column.type})"
            yield declared.name, column.name, f"CASE WHEN random() < 0.5 THEN {column.name} END"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_verb_survives_every_strange_value(intact: Path, run: Path, tmp_path: Path) -> None:
    for name, column, value in forgeries(intact):
        folder = Path(shutil.copytree(intact, tmp_path / "forged"))
        forge(folder, name, **{column: value})
        try:
            ask_everything(folder)
        except Exception as error:
            raise AssertionError(f"{name}.{column} = {value}") from error
        shutil.rmtree(folder)


def test_known_words_are_those_of_the_writers() -> None:
    assert set(validity._LINES) == set(LINES)
    assert set(validity._WORDS["events", "kind"]) == set(KINDS)


def test_user_without_home_can_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    Run.open(run).close()


@pytest.mark.parametrize("kind", ["an unreadable cache", "no seal in its place"])
def test_odd_machines_and_manifests(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "an unreadable cache":
        monkeypatch.setenv("XDG_CACHE_HOME", str(run / "run.json"))
        Run.open(run).close()
        return
    document = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({"seal": document.pop("seal"), **document}))
    with pytest.raises(BrokenRun, match="was changed after it was written"):
        Run.open(run)
