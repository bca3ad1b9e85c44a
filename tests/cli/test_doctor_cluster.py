"""`doctor --cluster`: made-up ranks with planted faults are judged; then real ranks over gloo."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from benchmarks.namespaces import Unavailable, hosts

from lostflops.doctor.cluster_checks import ClusterCheck, cluster_checks, read_ranks
from lostflops.doctor.cluster_result import cluster_result, is_healthy
from lostflops.predict.costs.nccl import nccl_times, slowest_expected
from lostflops.predict.costs.times import CommGroup
from lostflops.predict.costs.topology import read_topology

H100 = "NVIDIA H100 80GB HBM3"
GB = 1 << 30


def rank(number: int, per_host: int = 2, **changes: Any) -> dict[str, Any]:
    """Return what a healthy rank says: 700 of 989 TFLOPS, 2,684 of 3,350 GB/s, links of 300 and 40 GB/s."""
    host = number // per_host
    made: dict[str, Any] = {
        "rank": number,
        "host": f"node{host}",
        "host_number": host,
        "device": H100,
        "torch": "2.13.0",
        "nccl": "2.28.9",
        "driver": "570.86",
        "python": "3.12.1",
        "lostflops": "1.0",
        "clock": None if host == 0 else {"offset": 3_000_000, "error": 50_000},
        "disk": {
            "folder": "/data",
            "file_system": "ext4",
            "free_bytes": 500 * GB,
            "write_error": "",
            "write_ns": 1,
            "written_bytes": 1,
        },
        "matmul": {"dtype": "bfloat16", "m": 8192, "n": 8192, "k": 8192, "ns": [1_570_000, 1_571_000, 1_580_000]},
        "memory": {"kind": "copy", "bytes": GB // 2, "ns": [200_000, 200_100, 201_000]},
        "links": {
            "inside": [{"peer": number ^ 1, "bytes": 3 * GB, "ns": [10_737_418, 10_740_000, 10_750_000]}],
            "across": [{"peer": number ^ 2, "bytes": GB, "ns": [26_843_545, 26_850_000, 26_860_000]}],
        },
    }
    return made | changes


def slow(name: str, factor: float, number: int = 5) -> dict[str, Any]:
    measured = rank(number)[name]
    return rank(number, **{name: {**measured, "ns": [round(ns * factor) for ns in measured["ns"]]}})


def judge(*changed: Mapping[str, Any], count: int = 8) -> dict[str, ClusterCheck]:
    """Return the checks of four hosts with two ranks each, by name."""
    other = {row["rank"]: row for row in changed}
    rows = [other.get(number, rank(number)) for number in range(count)]
    return {check.name: check for check in cluster_checks(rows, [], {})}


def wrong(checks: Mapping[str, ClusterCheck]) -> dict[str, str]:
    return {name: check.state for name, check in checks.items() if check.state != "pass"}


def test_a_healthy_cluster_passes() -> None:
    checks = judge()
    assert wrong(checks) == {}
    assert "median 700 TFLOPS" in checks["matmul"].finding
    assert "70.8% of peak or more" in checks["matmul"].finding
    assert "median 2.68e+03 GB/s" in checks["memory"].finding
    assert "median 300 GB/s" in checks["links inside hosts"].finding
    assert "torch 2.13.0, nccl 2.28.9, driver 570.86" in checks["versions"].finding
    assert checks["clocks"].finding == "at most 3.00 ms apart from rank 0"


@pytest.mark.parametrize(
    ("factor", "state"),
    # Two of eight ranks are on a host: without it the job has 75% of its pace, which a factor of 4/3 leaves too.
    [(1.04, "pass"), (1.06, "warn"), (1.32, "warn"), (1.35, "fail"), (10, "fail")],
)
@pytest.mark.parametrize("name", ["matmul", "memory"])
def test_a_slow_rank_fails_if_the_job_is_faster_without_its_host(name: str, factor: float, state: str) -> None:
    check = judge(slow(name, factor))[name]
    assert check.state == state
    assert check.where.startswith("rank 5 (node2): " if state != "pass" else "")


def test_a_rank_whose_fastest_batch_is_as_fast_as_its_peers_is_noise() -> None:
    measured = rank(5)["matmul"]
    noisy = rank(5, matmul={**measured, "ns": [1_560_000, 9_000_000, 9_000_000]})
    everyone = [noisy if number == 5 else rank(number) for number in range(8)]
    assert wrong(judge(*(row | {"device": "NVIDIA Unknown 9000"} for row in everyone))) == {}


def test_all_ranks_equally_slow_are_found_by_their_peak() -> None:
    everyone = [slow("matmul", 3, number) for number in range(8)]
    check = judge(*everyone)["matmul"]
    assert check.state == "fail"
    assert "23.6% of peak" in check.where
    unknown = [row | {"device": "NVIDIA Unknown 9000"} for row in everyone]
    assert judge(*unknown)["matmul"].state == "pass"


def test_the_host_with_the_slow_adapter_is_named_and_not_its_partners() -> None:
    """Rank 4's host sends at a tenth; its partners have another pair that is fast."""
    link = {"bytes": GB, "ns": [268_435_450, 268_500_000, 268_600_000]}
    fast = rank(0)["links"]["across"][0]

    def across(number: int, *peers: int) -> dict[str, Any]:
        pairs = [{**(link if {number, peer} & {4, 5} else fast), "peer": peer} for peer in peers]
        return rank(number, links={**rank(number)["links"], "across": pairs})

    checks = judge(*(across(number, number ^ 2, number ^ 4) for number in range(8)))
    assert wrong(checks) == {"links across hosts": "fail"}
    where = checks["links across hosts"].where
    assert [text.partition(":")[0] for text in where.split("; ") if "rank" in text] == [
        "rank 4 (node2)",
        "rank 5 (node2)",
    ]


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [("torch", "2.12.0", "fail"), ("nccl", "2.27.5", "fail"), ("driver", "550.1", "warn"), ("python", "3.11", "warn")],
)
def test_another_version_is_named(name: str, value: str, state: str) -> None:
    checks = judge(rank(3, **{name: value}))
    assert wrong(checks) == {f"same {name}": state}
    assert checks[f"same {name}"].where == f"rank 3 (node1): {value}"


def test_two_versions_that_are_equally_common_are_both_named() -> None:
    check = judge(rank(1, torch="2.12.0"), count=2)["same torch"]
    assert check.where == "rank 0 (node0): 2.13.0; rank 1 (node0): 2.12.0"


def test_a_clock_that_no_time_server_keeps() -> None:
    far = {"offset": -130_000_000, "error": 1_000_000}
    checks = judge(*(rank(number, clock=far) for number in (6, 7)))
    assert wrong(checks) == {"clocks": "warn"}
    assert checks["clocks"].where.endswith("130 ms behind rank 0")
    unsure = {"offset": -130_000_000, "error": 3_000_000}
    assert wrong(judge(rank(6, clock=unsure))) == {}


def test_the_least_space_of_a_full_disk_is_nothing() -> None:
    checks = judge(rank(2, disk=rank(2)["disk"] | {"free_bytes": 0}))
    assert (checks["disk"].state, checks["disk"].finding) == ("fail", "at least 0 B free on each host")


@pytest.mark.parametrize(("free", "state"), [(1 << 20, "fail"), (GB, "warn")])
def test_a_full_disk_is_named(free: int, state: str) -> None:
    checks = judge(rank(2, disk=rank(2)["disk"] | {"free_bytes": free}))
    assert wrong(checks) == {"disk": state}
    assert checks["disk"].where.startswith("rank 2 (node1)")


def test_containers_with_one_name_are_numbered() -> None:
    rows = [rank(number) | {"host": "box"} for number in range(4)]
    assert [one.host for one in read_ranks(rows)] == ["box #1", "box #1", "box #2", "box #2"]


def test_a_collective_slower_than_the_model_allows_fails() -> None:
    dgx = read_topology("dgx-h100")
    row = {"op": "all_reduce", "level": "host", "ranks": 8, "hosts": 1, "bytes": 64 << 20}
    limit = nccl_times("all_reduce", 64 << 20, CommGroup(8), dgx)[0].high
    assert slowest_expected([row], dgx) == {("all_reduce", "host"): limit}
    for factor, state in ((0.9, "pass"), (1.1, "fail")):
        measured = [{**row, "ns": [round(limit * factor)] * 3}]
        checks = cluster_checks([rank(0)], measured, slowest_expected(measured, dgx))
        assert checks[-1].state == state


def test_the_result_says_what_to_do() -> None:
    rows = [rank(number) for number in range(7)] + [slow("matmul", 5, 7)]
    checks = cluster_checks(rows, [], {})
    said = cluster_result(checks, read_ranks(rows), ()).to_json()
    assert said["verdict"].startswith(
        "FAIL: 1 of 7 checks on 8 ranks, 4 hosts. First: matmul: rank 7 (node3): 140 TFLOPS"
    )
    assert not said["is_healthy"]
    assert not is_healthy(checks)
    assert said["ranks"][0]["rank"] == 7
    assert any("leave the host out" in note for note in said["notes"])


# Real ranks.

PROGRAM = """
import os, runpy, sys, time
planted = os.environ.get("PLANTED")
if planted:
    import torch
    if planted == "crowded":
        os.sched_setaffinity(0, {0}); os.nice(5)
    if planted == "version":
        torch.__version__ = "2.0.0"
    if planted == "hang":
        import lostflops.collect.calibrate.health as health
        health._product = lambda device: time.sleep(600)
sys.argv[0] = "lostflops"
runpy.run_module("lostflops", run_name="__main__")
"""
BURN = "import os\nos.sched_setaffinity(0, {0})\nwhile True: pass"


@contextmanager
def started(planted: Mapping[int, str], world: int, seconds: int, *options: str) -> Iterator[list[Any]]:
    """Yield ranks on this host; a planted `absent` rank is not started."""
    port = str(21_000 + os.getpid() % 9_000)
    common = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [
        sys.executable,
        "-c",
        PROGRAM,
        "doctor",
        "--cluster",
        "--device",
        "cpu",
        "--seconds",
        str(seconds),
        *options,
    ]
    processes = []
    try:
        for number in range(world):
            if planted.get(number) == "absent":
                continue
            own = {"RANK": str(number), "LOCAL_RANK": str(number), "PLANTED": planted.get(number, "")}
            more = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **common, **own}
            processes.append(
                subprocess.Popen(
                    words, env={**os.environ, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            )
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def finish(processes: Sequence[Any], seconds: float) -> tuple[str, list[int], str]:
    """Return what rank 0 printed, and how all ended."""
    outputs = [process.communicate(timeout=seconds) for process in processes]
    return outputs[0][0], [process.returncode for process in processes], "".join(err for _, err in outputs)


def test_the_garbage_collector_of_the_program_is_as_before() -> None:
    words = (
        "import gc, os, lostflops; lostflops.doctor('.', cluster=True, seconds=5, device='cpu'); print(gc.isenabled())"
    )
    alone = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run([sys.executable, "-c", words], env=alone, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_real_ranks_with_one_version_apart() -> None:
    pytest.importorskip("torch")
    with started({1: "version"}, 3, 90, "--json") as processes:
        printed, codes, errors = finish(processes, 150)
    assert codes == [1, 1, 1], errors
    said = json.loads(printed[printed.index("{") :])
    (check,) = [row for row in said["checks"] if row["check"] == "same torch"]
    assert check["state"] == "fail"
    assert check["where"].startswith("rank 1 (")
    assert {row["check"] for row in said["checks"]} >= {"matmul", "memory", "links inside hosts", "all_reduce (host)"}
    assert sorted(row["rank"] for row in said["ranks"]) == [0, 1, 2]


def test_a_rank_that_never_starts_ends_in_words() -> None:
    pytest.importorskip("torch")
    with started({2: "absent"}, 3, 75) as processes:
        _, codes, errors = finish(processes, 150)
    assert codes == [1, 1]
    assert "rank 2 of 3 did not start within the time limit" in errors
    assert "Traceback" not in errors


def test_a_rank_that_hangs_is_named_at_the_time_limit() -> None:
    pytest.importorskip("torch")
    with started({1: "hang"}, 3, 45) as processes:
        _, codes, errors = finish(processes, 150)
    assert codes == [1, 1, 1]
    assert "rank 1 on" in errors
    assert "did not get past phase matmul" in errors


@pytest.mark.slow
def test_real_healthy_ranks_pass_on_an_idle_machine() -> None:
    pytest.importorskip("torch")
    if os.getloadavg()[0] > 0.5 or (os.cpu_count() or 1) < 2:
        pytest.skip("other processes use the cores")
    with started({}, 2, 60, "--json") as processes:
        printed, codes, errors = finish(processes, 150)
    assert codes == [0, 0], errors + printed


@pytest.mark.slow
def test_a_rank_that_shares_its_core_is_named() -> None:
    pytest.importorskip("torch")
    crowd = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(4)]
    try:
        with started({1: "crowded"}, 2, 120, "--json") as processes:
            printed, codes, errors = finish(processes, 200)
    finally:
        for hog in crowd:
            hog.kill()
            hog.wait()
    assert codes == [1, 1], printed + errors
    said = json.loads(printed[printed.index("{") :])
    (check,) = [row for row in said["checks"] if row["check"] == "matmul"]
    assert check["state"] == "fail"
    assert check["where"].startswith("rank 1 ("), check
    assert "rank 0" not in check["where"]


@pytest.mark.slow
def test_a_host_with_a_limited_link_is_named() -> None:
    """Three hosts with 400 Mbit/s each way, of which one is limited to a tenth."""
    pytest.importorskip("torch")
    try:
        with hosts(3, mbit=400) as places:
            slow_host = places[1]
            limit = ("rate", "40mbit", "burst", "64kb", "latency", "100ms")
            words = ("tc", "-n", slow_host.name, "qdisc", "replace", "dev", "eth0", "root", "tbf", *limit)
            subprocess.run(words, check=True, capture_output=True)
            common = {"WORLD_SIZE": "3", "LOCAL_RANK": "0", "MASTER_ADDR": places[0].address, "MASTER_PORT": "29511"}
            processes = [
                subprocess.Popen(
                    [
                        *place.command,
                        sys.executable,
                        "-m",
                        "lostflops",
                        "doctor",
                        "--cluster",
                        "--device",
                        "cpu",
                        "--json",
                    ],
                    env={
                        **os.environ,
                        "OMP_NUM_THREADS": "1",
                        "GLOO_SOCKET_IFNAME": "eth0",
                        **common,
                        "RANK": str(number),
                    },
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for number, place in enumerate(places)
            ]
            try:
                printed, codes, errors = finish(processes, 120)
            finally:
                for process in processes:
                    process.kill()
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert codes == [1, 1, 1], errors
    said = json.loads(printed[printed.index("{") :])
    (check,) = [row for row in said["checks"] if row["check"] == "links across hosts"]
    assert check["state"] == "fail"
    assert check["where"].startswith("rank 1 (host1): ")
    assert "rank 0" not in check["where"]
    assert "rank 2" not in check["where"]
