"""Real ranks on this host over gloo, for a few seconds: what the file holds, and how long it takes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.collect.jobs import without_gloo

from lostflops.collect.calibrate.levels import COLLECTIVES

SECONDS = 8
LONGEST = 200
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
MODULE = ["-W", "error::FutureWarning", "-m", "lostflops.collect.calibrate"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **more}


def done(words: list[str], more: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words, env=environment(**(more or {})), capture_output=True, text=True, timeout=LONGEST, check=False
    )


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("calibration") / "two.json"
    words = [*TORCHRUN, "2", "-m", "lostflops.collect.calibrate", "--out", str(out), "--seconds", str(SECONDS)]
    finished = done(words)
    assert finished.returncode == 0, finished.stderr
    assert without_gloo(finished.stdout) == ""
    assert [path.name for path in out.parent.iterdir()] == ["two.json"]
    return dict(json.loads(out.read_text(encoding="utf-8")))


def test_the_head(document: dict[str, Any]) -> None:
    assert document["schema"] == "lostflops.calibration/1"
    assert (document["backend"], document["device"], document["nccl"], document["world_size"]) == (
        "gloo",
        "cpu",
        None,
        2,
    )
    (host,) = document["hosts"]
    assert host["ranks"] == [0, 1]
    assert host["cores"] >= 1
    assert host["memory"] > 1 << 20
    assert set(document) == {
        "schema", "date", "seconds", "lostflops", "torch", "python", "backend", "nccl", "device", "device_name",
        "world_size", "hosts", "collectives", "matmuls", "memory", "launches", "copies", "notes",
    }  # fmt: skip


def test_the_time_is_kept(document: dict[str, Any]) -> None:
    assert 0.3 * SECONDS < document["seconds"] <= 1.1 * SECONDS


def test_every_op_is_measured_at_its_level(document: dict[str, Any]) -> None:
    found = {(row["op"], row["level"]) for row in document["collectives"]}
    assert found == {*((op, "host") for op in COLLECTIVES), ("send_recv", "ring"), ("send_recv", "pair.host")}
    for row in document["collectives"]:
        assert (row["ranks"], row["hosts"], row["at_once"], row["dtype"]) == (2, 1, 1, "float32")
        assert len(row["ns"]) >= 3
        assert all(isinstance(ns, int) and ns > 0 for ns in row["ns"])


def test_sizes_are_powers_of_two_without_a_hole(document: dict[str, Any]) -> None:
    for op in COLLECTIVES:
        sizes = [row["bytes"] for row in document["collectives"] if row["op"] == op]
        assert sizes == [1024 << power for power in range(len(sizes))]
        assert len(sizes) >= 3


def test_the_device(document: dict[str, Any]) -> None:
    assert {row["dtype"] for row in document["matmuls"]} == {"float32", "bfloat16"}
    assert [row["kind"] for row in document["memory"]] == ["copy", "add"]
    assert [row["kind"] for row in document["launches"]] == ["small op"]
    assert document["copies"] == []
    rows = [row for table in ("matmuls", "memory", "launches") for row in document[table]]
    assert all(len(row["ns"]) >= 3 and min(row["ns"]) > 0 for row in rows)


def test_alone_only_the_device_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    finished = done([sys.executable, *MODULE, "--out", str(out), "--seconds", "3"])
    assert (finished.returncode, without_gloo(finished.stdout)) == (0, ""), finished.stderr
    document = json.loads(out.read_text())
    assert (document["world_size"], document["backend"], document["collectives"]) == (1, None, [])
    assert document["matmuls"]


def test_chosen_ops_and_sizes(tmp_path: Path) -> None:
    out = tmp_path / "chosen.json"
    words = [*TORCHRUN, "2", "-m", "lostflops.collect.calibrate", "--out", str(out), "--seconds", "4"]
    finished = done([*words, "--only", "all_gather", "--sizes", "3000,24000"])
    assert finished.returncode == 0, finished.stderr
    found = {(row["op"], row["bytes"]) for row in json.loads(out.read_text())["collectives"]}
    assert found == {("all_gather", 3000), ("all_gather", 24000)}


def test_a_place_that_cannot_be_written_is_told_before_it_is_measured(tmp_path: Path) -> None:
    finished = done([sys.executable, *MODULE, "--out", str(tmp_path / "no" / "one.json"), "--seconds", "60"])
    assert finished.returncode == 2
    assert finished.stderr == f"lostflops: {tmp_path / 'no'} is not a writable folder; choose another --out.\n"


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_others(tmp_path: Path) -> None:
    """Without torchrun, which would end them by itself."""
    out = tmp_path / "never.json"
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 10000)}
    words = [sys.executable, "-m", "lostflops.collect.calibrate", "--out", str(out), "--seconds", "60"]
    with (tmp_path / "log").open("wb") as log:
        ranks = [
            subprocess.Popen(words, env=environment(**common, RANK=str(rank), LOCAL_RANK=str(rank)), stderr=log)
            for rank in range(2)
        ]
        try:
            until = time.monotonic() + LONGEST
            while "lostflops: [" not in (tmp_path / "log").read_text():
                assert time.monotonic() < until
                assert [rank.poll() for rank in ranks] == [None, None]
                time.sleep(0.2)
            ranks[1].kill()
            assert ranks[0].wait(60) == 1
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    assert not out.exists()
    assert "lostflops: rank 0: another rank has ended" in (tmp_path / "log").read_text()
