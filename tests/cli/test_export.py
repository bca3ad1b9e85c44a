"""`lostflops export`: what is written where, what is said, what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.mini_traces import BUSY, CALM, make_run


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("golden"), BUSY, CALM)


def test_a_trace_is_written(lostflops: Any, golden: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.pftrace"
    said = json.loads(lostflops("export", golden, "--perfetto", file, "--json").out)
    assert (said["file"], said["bytes"], said["ranks"]) == (str(file), file.stat().st_size, 2)
    assert said["slices"] > said["tracks"] > 2
    assert list(tmp_path.iterdir()) == [file]


def test_a_name_that_ends_in_gz_is_compressed(lostflops: Any, golden: Path, tmp_path: Path) -> None:
    for name in ("trace", "trace.gz"):
        lostflops("export", golden, "--perfetto", tmp_path / name)
    assert gzip.decompress((tmp_path / "trace.gz").read_bytes()) == (tmp_path / "trace").read_bytes()


def test_people_are_told_how_to_open_it(lostflops: Any, golden: Path, tmp_path: Path) -> None:
    out = " ".join(lostflops("export", golden, "--perfetto", tmp_path / "t", "--rank", "1").out.split())
    assert "of 1 rank" in out
    assert "ui.perfetto.dev" in out
    assert "not uploaded" in out
    assert f"lostflops open {golden}" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [((), "--perfetto FILE"), (("--rank", "9"), "no rank 9"), (("--step", "99"), "step 99 was not recorded")],
)
def test_what_cannot_be_done_leaves_the_old_file(
    lostflops: Any, golden: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "trace"
    file.write_bytes(b"old")
    outcome = lostflops("export", golden, *(("--perfetto", file, *words) if words else ()))
    assert outcome.code == 2
    assert said in outcome.err
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]
