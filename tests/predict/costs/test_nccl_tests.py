"""Logs of nccl-tests, made and recorded."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from lostflops.core.errors import UnknownFormat, UsageError
from lostflops.predict.costs.calibration import Calibration
from lostflops.predict.costs.nccl_tests import read_nccl_tests
from shared_data import TRACES, needs_traces

RECORDED = TRACES / "microsoft__superbenchmark"
TWO_HOSTS = TRACES / "aws-samples__awsome-distributed-training" / "nccl-tests_slurm-104.out.gz"
OPS = {
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reducescatter": "reduce_scatter",
}


def log(between: str, *, ranks: int = 4, hosts: int = 2, share: int = 1, factor: float = 1.5, prefix: str = "") -> str:
    """What a program prints; a rank contributes 1/share of a size."""
    lines = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20",
        "#",
        "# Using devices",
        *(
            f"#  Rank {rank:2} Group  0 Pid  7{rank} on node{rank * hosts // ranks} device  0 [0x10] NVIDIA Test 40GB"
            for rank in range(ranks)
        ),
        "NCCL version 2.18.3+cuda12.2",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw",
        f"           0             0     float {between}    0.14    0.00    0.00      0     0.14    0.00    0.00     0",
    ]
    for power in range(10, 16):
        size, us = 2**power, 10 + 2**power / 1000
        rates = f"{us:.2f}  1.00  {factor:.2f}   0"
        lines.append(f"  {size}   {size // 4 // share}  float  {between}  {rates}  {rates}")
    return "\n".join(prefix + line for line in [*lines, "# Out of bounds values : 0 OK"])


def read(tmp_path: Path, text: str, name: str = "test.log", op: str | None = None) -> Calibration:
    (tmp_path / name).write_text(text)
    return read_nccl_tests([tmp_path / name], op)


@pytest.mark.parametrize(
    ("between", "share", "factor", "op"),
    [
        ("sum -1", 1, 1.5, "all_reduce"),
        ("sum", 1, 1.5, "all_reduce"),
        ("sum -1", 1, 1.0, "send_recv"),
        ("sum -1", 4, 0.75, "reduce_scatter"),
        ("none 0", 1, 1.0, "broadcast"),
        ("0", 1, 1.0, "broadcast"),
        ("sum 0", 1, 1.0, "reduce"),
    ],
)
def test_columns_tell_the_operation(tmp_path: Path, between: str, share: int, factor: float, op: str) -> None:
    found = read(tmp_path, log(between, share=share, factor=factor))
    assert {one.op for one in found.collectives} == {op}


def test_ranks_hosts_sizes_and_versions(tmp_path: Path) -> None:
    found = read(tmp_path, log("sum -1", prefix=" 0: "))
    assert (found.nccl, found.device_name, found.world_size) == ("2.18.3", "NVIDIA Test 40GB", 4)
    assert [host.ranks for host in found.hosts] == [(0, 1), (2, 3)]
    first = found.collectives[0]
    assert (first.key, first.bytes, first.ns) == (("all_reduce", "world", 4, 2), 1024, (11020, 11020))
    assert "Left out: 1 row of size 0." in found.notes


def test_operations_that_look_alike_are_told_by_program_or_file_name(tmp_path: Path) -> None:
    alike = log("none -1", share=4, factor=0.75)
    assert read(tmp_path, f"# Collective test starting: alltoall_perf\n{alike}").collectives[0].op == "all_to_all"
    assert read(tmp_path, alike, "all-gather.txt").collectives[0].op == "all_gather"
    assert read(tmp_path, alike, op="all_to_all").collectives[0].op == "all_to_all"
    with pytest.raises(UsageError, match="all_gather or all_to_all"):
        read(tmp_path, alike)


def test_a_name_that_contradicts_the_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a log of all_gather"):
        read(tmp_path, log("sum -1"), op="all_gather")


def test_a_file_can_hold_several_tests(tmp_path: Path) -> None:
    gathers = log("none -1", share=4, factor=0.75)
    text = f"$ ./all_gather_perf -b 8\n{gathers}\n$ ./alltoall_perf -b 8\n{gathers}\n{log('sum -1')}"
    found = read(tmp_path, text)
    assert [key[0] for key in found.samples] == ["all_gather", "all_reduce", "all_to_all"]


def test_a_split_test_has_groups_that_run_at_once(tmp_path: Path) -> None:
    text = log("sum -1", ranks=6).replace("Rank  3 Group  0", "Rank  3 Group  1")
    text = text.replace("Rank  4 Group  0", "Rank  4 Group  1").replace("Rank  5 Group  0", "Rank  5 Group  1")
    first = read(tmp_path, text).collectives[0]
    assert (first.ranks, first.hosts, first.at_once) == (3, 1, 2)


@pytest.mark.parametrize("time", ["inf", "nan", "-3.10", "0.00"])
def test_a_row_without_a_time_is_no_row(tmp_path: Path, time: str) -> None:
    text = log("sum -1")
    assert "11.02" in text
    sizes = [one.bytes for one in read(tmp_path, text.replace("11.02", time)).collectives]
    assert sizes == [2**power for power in range(11, 16)]


def test_tests_without_an_in_place_form_have_one_sample(tmp_path: Path) -> None:
    lines = log("sum -1").splitlines()
    rows = [
        line.rsplit(maxsplit=4)[0] + "  N/A  N/A  N/A  N/A" if line.split()[0].isdigit() else line for line in lines
    ]
    found = read(tmp_path, "\n".join(rows))
    assert [len(one.ns) for one in found.collectives] == [1] * 6


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match="not an nccl-tests log"):
        read(tmp_path, "hello\n")
    (tmp_path / "a.log").write_text(log("sum -1").replace("Test 40GB", "Test 80GB"))
    (tmp_path / "b.log").write_text(log("sum -1"))
    with pytest.raises(UsageError, match="different devices"):
        read_nccl_tests([tmp_path / "a.log", tmp_path / "b.log"])


def errors(calibration: Calibration, smallest: int) -> list[float]:
    return [
        abs(calibration.curves[key].at(size) / ns - 1)
        for key, samples in calibration.samples.items()
        for size, times in samples.items()
        if size >= smallest
        for ns in (*times, median(times))
    ]


@needs_traces
def test_recorded_logs_of_eight_devices_are_reproduced() -> None:
    found = read_nccl_tests([RECORDED / f"nccl_{name}.log" for name in OPS])
    assert set(found.curves) == {(op, "host", 8, 1) for op in OPS.values()}
    assert max(errors(found, 10**6)) < 0.15
    assert len(errors(found, 10**6)) >= 5 * 13 * 3
    assert "Left out: 19 rows of size 0." in found.notes


@needs_traces
def test_a_recorded_log_of_two_hosts_needs_the_name_of_its_operation() -> None:
    with pytest.raises(UsageError, match="scatter or gather"):
        read_nccl_tests([TWO_HOSTS])
    found = read_nccl_tests([TWO_HOSTS], op="scatter")
    assert set(found.curves) == {("scatter", "world", 16, 2)}
    assert max(errors(found, 10**6)) < 0.15
    assert found.nccl == "2.18.3"
