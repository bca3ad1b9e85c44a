"""Inputs of the fuzzer again, without it: seeds, its corpus, and every input that once found a defect."""

import random

import pytest

from lostflops.core.errors import BrokenSource
from lostflops.ingest.formats import READERS
from lostflops.store.tables import STATS
from tests.fuzz import mutations, seeds
from tests.fuzz.known import CORPUS, FOUND, found_inputs, known_inputs
from tests.fuzz.row_sink import RowSink
from tests.fuzz.targets import TARGETS, check_kineto, check_reader


@pytest.fixture(autouse=True)
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has never seen these runs: it looks at all of their rows."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/none")
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/none")


_SLOW = ("whole", "open")
"""An ingest and three answers take about a second."""


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in _SLOW])
def test_known_inputs_keep_the_promise(name: str) -> None:
    TARGETS[name].check(TARGETS[name].seeds()[0])  # what is compiled or loaded once is not the time of an input
    for data in known_inputs(name):
        TARGETS[name].run(data)


@pytest.mark.parametrize("name", _SLOW)
def test_found_inputs_are_answered(name: str) -> None:
    for data in (TARGETS[name].seeds()[1], *(path.read_bytes() for path in found_inputs(name))):
        TARGETS[name].run(data)


@pytest.mark.slow
@pytest.mark.parametrize("name", _SLOW)
def test_every_format_is_answered(name: str) -> None:
    for data in known_inputs(name):
        TARGETS[name].run(data)


def test_every_reader_is_a_target_and_reads_its_seeds() -> None:
    names = {"_dump_0": seeds.flight(), "rank-00000.capture": seeds.captures(), "rank0.sqlite": seeds.nsys()}
    names |= {"snapshot_rank0.pickle": seeds.allocator(), "ops.parquet": seeds.op_trace()}
    names |= {"pp_rank_0.json": seeds.schedules()[:1], "job.out": seeds.nccl_info_logs()}
    read = {reader for file, made in names.items() for reader in READERS if check_reader(made[0], reader, file).puts}
    read |= {"kineto"} if all(check_kineto(data).puts for data in seeds.kineto()) else set()
    assert read == set(READERS)


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in (*_SLOW, "sql")])
def test_seeds_are_valid(name: str) -> None:
    """A seed that is refused at once would leave the code after that unfuzzed."""
    for data in TARGETS[name].seeds():
        TARGETS[name].check(data)


def test_found_inputs_belong_to_targets() -> None:
    listed = [path for name in TARGETS for path in found_inputs(name)]
    assert sorted(listed) == sorted(FOUND.iterdir())
    assert sum(path.stat().st_size for path in (*FOUND.iterdir(), *CORPUS.glob("*.zip"))) < 1 << 20


def test_sink_refuses_what_no_file_can_hold() -> None:
    for column, value in (("count", 1 << 63), ("reason", "\ud800"), ("reason", b"x")):
        with pytest.raises((AssertionError, OverflowError, UnicodeEncodeError)):
            RowSink().put(STATS, 0, 1, {column: [value]})
    with pytest.raises(AssertionError):
        RowSink().put(STATS, 0, 2, {"count": [1]})


_MUST_TELL = (mutations.truncate, mutations.odd_number, mutations.not_a_number, mutations.wrong_type)


def test_lost_rows_are_counted() -> None:
    """After a cut, or damage to a value, fewer events than before must show in `stats`."""

    def state(data: bytes) -> tuple[int, set[tuple[str, int]]]:
        rows, stats = 0, set()
        for table, _, count, columns in check_kineto(data).contents():
            rows += count if table == "events" else 0
            if table == "stats":
                stats |= set(zip(columns["what"], columns["count"], strict=True))
        return rows, stats

    original = seeds.kineto()[1]
    rows, usual = state(original)
    lost = 0
    for number in range(60):
        chance = random.Random(number)
        damaged = chance.choice(_MUST_TELL)(chance, original)
        try:
            left, stats = state(damaged)
        except BrokenSource:
            continue
        if b'"traceEvents"' in damaged:
            lost += left < rows
            assert left >= rows or stats != usual, f"case {number}: {rows - left} events lost and not in stats"
    assert lost > 5, "hardly any damage cost an event"


def test_bombs_end_early() -> None:
    bomb = mutations.gzip_bomb(random.Random(0), seeds.kineto()[0])
    assert len(bomb) < 3 << 20
    TARGETS["kineto"].run(bomb)
