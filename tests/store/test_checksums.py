"""A changed byte of a run is an error, never a number."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import lostflops as lf
from lostflops.core.errors import BrokenRun, LostflopsError
from lostflops.predict.whatif.predictions import load_predictions
from lostflops.store.checksums import checksum_of_file
from lostflops.store.run import Run
from lostflops.testing import SyntheticCluster
from lostflops.testing.store_run import store

FLIPS = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = store(SyntheticCluster(ranks=2, memory=True).generate(), tmp_path_factory.mktemp("jobs") / "run")
    with lf.open(folder) as opened:
        opened.diagnose(keep=True)
        opened.whatif("network.bandwidth=2x")
    return folder


def kinds_of_files(folder: Path) -> dict[str, list[Path]]:
    """All files of a run by kind: the manifest, predictions, and the files of each table."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != ".lock":
            kind = path.parent.name if path.suffix == ".parquet" else path.parent.name + path.suffix
            kinds.setdefault(kind, []).append(path)
    return kinds


def answer(folder: Path) -> str:
    """Everything that the report says, and all predictions."""
    with lf.open(folder) as opened:
        told = [opened.report().to_json(), opened.ranks().to_json(), opened.info().to_json()]
    return json.dumps([told, [repr(one) for one in load_predictions(folder)]], default=str)


def answer_or_error(folder: Path) -> str:
    try:
        return answer(folder)
    except LostflopsError as error:
        return str(error)


def flip_bits(folder: Path, count: int) -> None:
    """Flip one bit at a time, in every kind of file in turn: each answer is the same, or an error names the file."""
    chosen, kinds, before = random.Random(5), list(kinds_of_files(folder).values()), answer(folder)
    for number in range(count):
        path = chosen.choice(kinds[number % len(kinds)])
        intact = path.read_bytes()
        place, bit = chosen.randrange(len(intact)), chosen.randrange(8)
        changed = bytearray(intact)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        found = answer_or_error(folder)
        path.write_bytes(intact)
        assert found == before or path.name in found, f"bit {bit} of byte {place} of {path}: {found[:300]}"
    assert answer(folder) == before


def test_no_flipped_bit_changes_an_answer(run: Path) -> None:
    assert {"run.json", "predictions.json", "events", "ledger", "diagnosis"} <= kinds_of_files(run).keys()
    flip_bits(run, FLIPS)


@pytest.mark.slow
def test_no_flipped_bit_of_many_changes_an_answer(run: Path) -> None:
    flip_bits(run, 1000)


def test_error_names_the_file_and_what_is_intact(run: Path) -> None:
    path = kinds_of_files(run)["events"][0]
    intact = path.read_bytes()
    path.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
    try:
        with pytest.raises(BrokenRun, match=r"events.*was changed after.*table events of.*files are intact"):
            Run.open(run).rows("select count(*) from events")
        found = lf.verify(run)
    finally:
        path.write_bytes(intact)
    assert not found.is_intact
    assert [row["file"] for row in found.to_json()["damaged"]] == [str(path.relative_to(run))]
    assert lf.verify(run).is_intact


@pytest.mark.parametrize(
    "query",
    [
        "select max(dur) from EVENTS",
        'select max(dur) from "events"',
        "from main.events select max(dur)",
        "select * from query_table('ev' || 'ents')",
        "select * from query('select max(dur) from ev' || 'ents')",
    ],
)
def test_no_query_reads_a_damaged_table(run: Path, query: str) -> None:
    path = kinds_of_files(run)["events"][0]
    intact = path.read_bytes()
    path.write_bytes(intact[:60] + bytes([intact[60] ^ 1]) + intact[61:])
    try:
        with Run.open(run) as opened:
            assert opened.rows("select count(*) from steps"), "other tables can be read"
            with pytest.raises(BrokenRun, match="events"):
                opened.sql(query).fetchall()
    finally:
        path.write_bytes(intact)


def test_run_without_its_seal_is_refused(run: Path) -> None:
    manifest = run / "run.json"
    intact = manifest.read_text()
    manifest.write_text(intact.replace('"seal"', '"sea1"'))
    try:
        with pytest.raises(BrokenRun, match="was changed after it was written"):
            Run.open(run)
    finally:
        manifest.write_text(intact)


def test_damaged_run_is_not_written_to(run: Path, tmp_path: Path) -> None:
    """Rows of a damaged file must not get a new, valid checksum."""
    path = kinds_of_files(run)["steps"][0]
    intact = path.read_bytes()
    path.write_bytes(intact[:40] + bytes([intact[40] ^ 1]) + intact[41:])
    try:
        with pytest.raises(BrokenRun, match="steps"):
            store(SyntheticCluster(ranks=1).generate(), run)
    finally:
        path.write_bytes(intact)


def test_file_that_changes_twice_at_once_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    found = set()
    for number in range(50):
        path.write_bytes(number.to_bytes(4))
        found.add(checksum_of_file(path))
    assert len(found) == 50
