"""`comm` holds what NCCL logged against the links of the machine and against NCCL's own model."""

from pathlib import Path
from typing import Any

import pytest
from tests.made_nccl_log import COMM_ID, log, prefix, start

from lostflops.explain.analyze.comm import comm
from lostflops.ingest import ingest
from lostflops.predict.costs.nccl import nccl_times
from lostflops.predict.costs.times import CommGroup
from lostflops.predict.costs.topology import read_topology
from lostflops.store.run import Run
from memory_run import MemoryRun


def ask(folder: Path, text: str, **options: Any) -> dict[str, Any]:
    (folder / "job.out").write_text(text)
    ingest([folder / "job.out"], folder / "run", workers=1)
    with Run.open(folder / "run") as run:
        return comm(run, **options).to_json()


def test_communicators_of_one_shape_are_one_row(tmp_path: Path) -> None:
    said = ask(tmp_path, log(4, hosts=2))
    shape = {"communicators": 1, "size": 4, "hosts": 2, "channels": 2, "rings": 2, "nvls_channels": 0}
    transports = {"inside": "P2P/IPC/read", "across": "NET/IB/GDRDMA", "version": "2.18.3"}
    assert [{name: row[name] for name in (*shape, *transports)} for row in said["nccl_communicators"]] == [
        shape | transports
    ]
    assert said["nccl_faults"] == []


ADAPTERS = "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>"
ROW_0, ROW_2 = prefix(0, 4, 2), prefix(2, 4, 2)
FAULTS = {
    "sockets next to InfiniBand": (
        log(4, 2, across="NET/Socket/0").replace("Using network IB", f"{ADAPTERS}\n{ROW_0} Using network Socket", 1)
        + f"{prefix(1, 4, 2)} {ADAPTERS}\n",
        ["sockets instead of mlx5_0:1/IB", "node0: 1 pair, e.g. rank 1 to 2"],
    ),
    "shared memory where peers exist": (
        log(4, 2) + f"{ROW_2} Channel 01/0 : 2[0] -> 3[1] via SHM/direct/direct\n",
        ["SHM/direct/direct inside a host, where peer-to-peer is possible", "node1: 1 pair, e.g. rank 2 to 3"],
    ),
    "an adapter without GPUDirect": (
        log(4, 2).replace("3[1] -> 0[0] [send] via NET/IB/0/GDRDMA", "3[1] -> 0[0] [send] via NET/IB/0"),
        ["adapters without GPUDirect RDMA, which other connections use", "node1: 1 pair, e.g. rank 3 to 0"],
    ),
    "a start without an end": (
        "".join(line for line in log().splitlines(True) if not ("1001" in line and "COMPLETE" in line)),
        ["a communicator that did not finish its start", "2 ranks; not finished on 1"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), FAULTS.values(), ids=list(FAULTS))
def test_each_fault_is_named_with_its_place(text: str, expected: list[str], tmp_path: Path) -> None:
    assert [[row["what"], row["where"]] for row in ask(tmp_path, text)["nccl_faults"]] == [expected]


def test_sockets_are_no_fault_without_adapters(tmp_path: Path) -> None:
    assert ask(tmp_path, log(4, 2, across="NET/Socket/0"))["nccl_faults"] == []


def test_shared_memory_is_no_fault_of_devices_without_peers(tmp_path: Path) -> None:
    assert ask(tmp_path, log(inside="SHM/direct/direct"))["nccl_faults"] == []
    with_links = ask(tmp_path, log(inside="SHM/direct/direct"), topology=read_topology("dgx-a100"))
    assert [row["where"] for row in with_links["nccl_faults"]] == ["node0: 2 pairs, e.g. rank 0 to 1"]


def test_fewer_channels_than_a_communicator_of_the_same_shape(tmp_path: Path) -> None:
    pairs = []
    for first, name, channels in ((0, "0x1", 8), (2, "0x2", 4)):
        lines = [line for rank in (0, 1) for line in start(rank, 2, comm=name, address=0xB000 + 16 * first)]
        moved = [
            line.replace(f"node0:100{rank}:", f"node0:100{rank + first}:")
            for line in lines
            for rank in (1, 0)
            if f":100{rank}:" in line
        ]
        pairs += [line.replace("2 coll channels", f"{channels} coll channels") for line in moved]
    faults = ask(tmp_path, log(4, more=pairs))["nccl_faults"]
    assert [(row["what"], row["where"]) for row in faults] == [
        ("4 channels, where communicators of the same shape have 8", "2 ranks from 2 to 3")
    ]


def test_multicast_that_the_switch_has_and_nccl_does_not_use(tmp_path: Path) -> None:
    faults = ask(tmp_path, log(8, 2), topology=read_topology("dgx-h100"))["nccl_faults"]
    assert [(row["what"], row["where"]) for row in faults] == [
        ("no NVLink SHARP (NVLS), which the switch has", "1 communicator of 8 ranks, e.g. 0 to 7")
    ]
    assert ask(tmp_path, log(8, 2), topology=read_topology("dgx-a100"))["nccl_faults"] == []


# Choices.


def choices(topology: str | None, device: str | None = None, **choice: Any) -> dict[str, Any]:
    """Return what is said about one choice of a communicator of 8 ranks on one host, or of 16 on two."""
    size, multicast = choice.pop("size", 8), {"nvls_channels": choice.pop("nvls_channels", None)}
    comms = [
        {"rank": rank, "comm": COMM_ID, "comm_rank": rank, "size": size, "host": f"h{rank // 8}", "bus": str(rank % 8)}
        | multicast
        for rank in range(choice.pop("logged", size))
    ]
    made = {"rank": 0, "comm": COMM_ID, "op": "all_reduce", "bytes": 1 << 30, "protocol": "Simple", "count": 3} | choice
    ranks = [{"rank": rank, "events": 0, "device": device} for rank in range(size)]
    with MemoryRun(ranks=ranks, nccl_comms=comms, nccl_choices=[made]) as run:
        said = comm(run, topology=None if topology is None else read_topology(topology)).to_json()
    return said["nccl_choices"][0] | {"notes": said["notes"]}


def test_the_models_choice_is_not_slower() -> None:
    best = nccl_times("all_reduce", 1 << 30, CommGroup(8), read_topology("dgx-a100"))[0].algorithm
    said = choices("dgx-a100", algorithm=best)
    assert (said["model_algorithm"], said["model_protocol"], said["slower"]) == (best, "Simple", 0.0)
    assert not any("otherwise" in note for note in said["notes"])


def test_a_tree_for_a_small_size_across_hosts_is_compared_by_the_model() -> None:
    group, dgx = CommGroup(16, 2), read_topology("dgx-a100")
    times = {time.algorithm: time.ns for time in nccl_times("all_reduce", 1 << 30, group, dgx)}
    worst = max(times, key=lambda name: times[name])
    said = choices("dgx-a100", size=16, algorithm=worst)
    assert said["hosts"] == 2
    assert said["slower"] == pytest.approx(times[worst] / min(times.values()) - 1)
    assert any("otherwise than its model in 3 of 3 calls" in note for note in said["notes"])


@pytest.mark.parametrize(
    ("size", "algorithm", "protocol"), [(65536, "tree", "LL"), (131072, "tree", "LL128"), (262144, "tree", "LL128")]
)
def test_the_model_chooses_as_nccl_did_on_three_hosts_of_h100(size: int, algorithm: str, protocol: str) -> None:
    """The choices for 24 ranks in the log of https://github.com/NVIDIA/nccl/issues/1453."""
    made = {"size": 24, "bytes": size, "algorithm": algorithm, "protocol": protocol, "nvls_channels": 0}
    assert choices("dgx-h100", **made)["slower"] == 0.0


def test_multicast_is_not_expected_of_a_communicator_without_it() -> None:
    with_it, without = (choices("dgx-h100", algorithm="ring", nvls_channels=channels) for channels in (16, 0))
    assert (with_it["model_algorithm"], without["model_algorithm"]) == ("nvls", "ring")
    assert without["slower"] == 0.0


def test_recorded_devices_give_the_links_inside_a_host() -> None:
    said = choices(None, device="NVIDIA A100-SXM4-40GB", algorithm="ring")
    assert (said["model_algorithm"], said["slower"]) == ("ring", 0.0)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"algorithm": "ring"}, "which devices it used"),
        ({"algorithm": "ring", "device": "NVIDIA A100-SXM4-40GB", "size": 16}, "rate of the network"),
        ({"algorithm": "ring", "topology": "dgx-a100", "logged": 5}, "not all of its ranks"),
        ({"algorithm": "ring", "topology": "dgx-a100", "comm": None}, "which communicator"),
        ({"algorithm": "ring", "topology": "dgx-a100", "op": None}, "an operation without a name"),
    ],
)
def test_what_cannot_be_compared_says_why(made: dict[str, Any], reason: str) -> None:
    said = choices(**{"topology": None} | made)
    assert (said["model_algorithm"], said["slower"]) == (None, None)
    assert any(reason in note and "3 calls not compared" in note for note in said["notes"])


def test_an_algorithm_that_the_model_lacks_has_no_slowdown() -> None:
    said = choices("dgx-a100", algorithm="collnet_direct")
    assert (said["model_algorithm"], said["slower"]) == ("ring", None)


def test_the_ring_of_a_reduce_is_the_models_chain() -> None:
    [best] = nccl_times("reduce", 1 << 30, CommGroup(8), read_topology("dgx-a100"))
    assert best.algorithm == "chain"
    said = choices("dgx-a100", op="reduce", algorithm="ring", protocol="Simple")
    assert (said["model_algorithm"], said["slower"]) == ("ring", 0.0)
    assert not any("chose otherwise" in note for note in said["notes"])


def test_a_communicator_of_one_rank_is_not_compared() -> None:
    comms = [{"rank": 0, "comm": "c", "comm_rank": 0, "size": 1, "host": "a", "is_complete": True}]
    made = {"rank": 0, "comm": "c", "op": "all_reduce", "bytes": 8, "algorithm": "ring", "protocol": "LL", "count": 1}
    with MemoryRun(ranks=[{"rank": 0, "events": 0}], nccl_comms=comms, nccl_choices=[made]) as run:
        said = comm(run, topology=read_topology("dgx-a100")).to_json()
    assert any("one rank sends nothing" in note for note in said["notes"])
