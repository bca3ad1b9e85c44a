"""Losses are the same to the last bit, recorded and not, and only processes that train record."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.collect.jobs import PYTHON, captures, finish, frames_of, plain_environment, recorded, records, without_gloo

pytest.importorskip("torch")

from tests.collect import zoo

QUICK = ("plain", "workers", "forking", "learning_workers", "ddp")
OTHERS = tuple(name for name in zoo.WAYS if name not in QUICK)


def run_both(folder: Path, names: tuple[str, ...]) -> tuple[Path, Path]:
    """The same ways to train, plainly and recorded with a deep window in the middle."""
    plain, ours = folder / "plain", folder / "ours"
    jobs = {plain: plain_environment(), ours: recorded(ours / "capture", steps="20:3")}
    for out in jobs:
        out.mkdir()
    with ThreadPoolExecutor() as pool:
        words = [PYTHON, str(zoo.__file__)]
        done = list(pool.map(lambda out: finish([*words, str(out), *names], jobs[out]), jobs))
    assert [(one.code, without_gloo(one.stdout.decode()).encode()) for one in done] == [(0, b"")] * 2, done
    # From Python 3.12 on, `os.fork()` warns about threads; the collector has one (docs/explanation/collector.md).
    said = re.sub(rb".*DeprecationWarning: .*use of fork\(\).*\n.*os\.fork\(\)\n", b"", done[1].stderr)
    assert done[0].stderr.replace(b"plain", b"ours") == said
    return plain, ours


def sizes(names: tuple[str, ...]) -> list[tuple[str, int]]:
    return [(name, rank) for name in names for rank in range(zoo.RANKS.get(zoo.WAYS[name], 1))]


def assert_same_losses(plain: Path, ours: Path, names: tuple[str, ...]) -> None:
    for name, rank in sizes(names):
        losses = (plain / f"{name}.{rank}").read_text()
        assert len(losses.split()) >= 48
        assert (ours / f"{name}.{rank}").read_text() == losses, name


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return run_both(tmp_path_factory.mktemp("zoo"), QUICK)


def test_losses_are_the_same_to_the_last_bit(quick: tuple[Path, Path]) -> None:
    assert_same_losses(*quick, QUICK)


def test_forked_children_and_workers_of_loaders_write_nothing(quick: tuple[Path, Path]) -> None:
    """One session for each process that trains, of a pid of its own, and each tells its own steps."""
    folder = quick[1] / "capture"
    sessions = records(folder, "session")
    assert len(sessions) == len({session["pid"] for session in sessions}) == len(sizes(QUICK))
    assert {path.name for path in captures(folder)} == {"rank-00000.capture", "rank-00001.capture"}
    for path in captures(folder):
        frames = frames_of(path)
        for session in {frame.session for frame in frames}:
            told = [record for frame in frames if frame.session == session for record in frame.records]
            assert [record["kind"] for record in told].count("session") == 1
            assert [record["step"] for record in told if record["kind"] == "step"] in (list(range(50)), list(range(48)))
            assert told[-1]["kind"] == "end"


def test_a_window_was_open_while_losses_were_compared(quick: tuple[Path, Path]) -> None:
    states = [record["state"] for record in records(quick[1] / "capture", "window")]
    assert states.count("stopped") == len(sizes(QUICK))
    assert not {"failed", "skipped"} & set(states)


@pytest.mark.slow
def test_losses_of_other_ways_to_train_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    plain, ours = run_both(tmp_path, OTHERS)
    assert_same_losses(plain, ours, OTHERS)
    sessions = records(ours / "capture", "session")
    assert len(sessions) == len({session["pid"] for session in sessions}) == len(sizes(OTHERS))
