"""Logs of NCCL become communicators, connections and choices of the ranks that wrote them."""

import gzip
import re
from pathlib import Path

import pytest
from tests.made_nccl_log import COMM_ID, log, prefix, start
from tests.shared_data import TRACES, needs_traces

from lostflops.core.errors import BrokenSource
from lostflops.ingest import ingest
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.ingest.formats.nccl_log import processes, reader
from lostflops.store.run import Run


def read(folder: Path, text: str, *queries: str, name: str = "job.out") -> list[list[object]]:
    (folder / name).write_text(text)
    ingest([folder / name], folder / "run", workers=1)
    with Run.open(folder / "run") as run:
        return [run.rows(query) for query in queries]


def test_a_merged_log_of_two_hosts_becomes_its_ranks(tmp_path: Path) -> None:
    comms, links, stats = read(
        tmp_path,
        log(4, hosts=2),
        "select rank, comm, comm_rank, size, host, device_index, channels, nvls_channels, rings, version, network"
        " from nccl_comms order by rank",
        "select rank, sender, receiver, transport, channels from nccl_links order by rank",
        "select what from stats",
    )
    shape = (2, 0)
    assert comms == [
        (0, COMM_ID, 0, 4, "node0", 0, *shape, 2, "2.18.3", "IB"),
        (1, COMM_ID, 1, 4, "node0", 1, *shape, None, "2.18.3", "IB"),
        (2, COMM_ID, 2, 4, "node1", 0, *shape, None, "2.18.3", "IB"),
        (3, COMM_ID, 3, 4, "node1", 1, *shape, None, "2.18.3", "IB"),
    ]
    assert links == [
        (0, 0, 1, "P2P/IPC/read", 2),
        (1, 1, 2, "NET/IB/GDRDMA", 2),
        (2, 2, 3, "P2P/IPC/read", 2),
        (3, 3, 0, "NET/IB/GDRDMA", 2),
    ]
    assert stats == []


TUNING = {
    # 2.18 to 2.20 name no operation, 2.22 and 2.23 do, and since 2.24 there are channels and words.
    "65536 Bytes -> Algo 0 proto 0 time 37.798233": (None, 65536, "tree", "LL", None),
    "AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 81.2": ("all_reduce", 1 << 20, "ring", "Simple", None),
    "AllReduce: 4096 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..7}": (
        *("all_reduce", 4096, "nvls_tree", "Simple", 8),
    ),
    # One rank's share: of two ranks, the whole is twice as much.
    "AllGather: 4096 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={3..3}": ("all_gather", 8192, "ring", "LL128", 1),
    "AllGather: 4096 Bytes -> Algo 6 proto 2 time 9.0": ("all_gather", 4096, "pat", "Simple", None),
}


@pytest.mark.parametrize(("said", "expected"), TUNING.items())
def test_choices_of_all_versions(said: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    line = f"{prefix(0, 2)} {said}"
    query = "select comm, op, bytes, algorithm, protocol, channels, count from nccl_choices"
    (choices,) = read(tmp_path, log(more=[line, line]), query)
    assert choices == [(COMM_ID, *expected, 2)]


CALL = (
    "{op}: opCount 3 sendbuff 0x7f20 recvbuff 0x7f30 count {count} datatype 7 op 0 root 0 comm 0x{comm:x} "
    "[nranks=2] stream 0x5"
)


def test_a_call_names_operation_and_communicator_of_a_choice(tmp_path: Path) -> None:
    other = "0x1111"
    two = [line for rank in (0, 1) for line in start(rank, 2, comm=other, address=0xB000)]
    calls = [
        CALL.format(op="AllReduce", count=256, comm=0xA000),
        "1024 Bytes -> Algo 1 proto 0 time 9.0",
        CALL.format(op="ReduceScatter", count=512, comm=0xB000),
        "4096 Bytes -> Algo 1 proto 2 time 9.0",
        "ReduceScatter: 2048 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}",
        "777 Bytes -> Algo 1 proto 2 time 9.0",
        "AllGather: 777 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}",
    ]
    choices, stats = read(
        tmp_path,
        log(more=[*two, *(f"{prefix(0, 2)} {call}" for call in calls)]),
        "select comm, op, bytes, channels from nccl_choices order by bytes, channels",
        "select what, count from stats",
    )
    assert choices == [
        (None, None, 777, None),
        (COMM_ID, "all_reduce", 1024, None),
        (other, "reduce_scatter", 4096, 2),
    ]
    assert stats == [("nccl_choices_ambiguous", 1)]


TIMED = "AllReduce: 4096 Bytes -> Algo RING proto SIMPLE time 9.0"
ON_CHANNELS = "AllReduce: 4096 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}"


def test_a_call_with_a_line_for_its_time_and_one_for_its_channels_counts_once(tmp_path: Path) -> None:
    """In a group, all times are written first. The third call has no line with channels, as on ranks other than 0."""
    said = [TIMED, TIMED, ON_CHANNELS, ON_CHANNELS, TIMED, TIMED.replace("RING", "TREE")]
    (choices,) = read(
        tmp_path,
        log(more=[f"{prefix(0, 2)} {line}" for line in said]),
        "select algorithm, channels, count from nccl_choices order by all",
    )
    assert choices == [("ring", 2, 2), ("ring", None, 1), ("tree", None, 1)]


def test_splits_are_named_after_their_parent(tmp_path: Path) -> None:
    """As NCCL 2.21 writes it, without a space before the dash at the start."""
    said = (
        "ncclCommSplit comm 0xc{rank} rank 0 nranks 1 cudaDev {rank} nvmlDev {rank} busId 1{rank}000 parent 0xa00{rank}"
    )
    split = [
        f"{prefix(rank, 2, thread=501)} {said.format(rank=rank)} splitCount 1 color {7 + rank} key 0{end}"
        for rank in (0, 1)
        for end in ("- Init START", " - Init COMPLETE")
    ]
    (comms,) = read(
        tmp_path, log(more=split), "select rank, comm, is_complete from nccl_comms where size = 1 order by 1"
    )
    assert comms == [(0, f"{COMM_ID}/1:7", True), (1, f"{COMM_ID}/1:8", True)]


def test_launchers_and_mixed_lines(tmp_path: Path) -> None:
    labels = ["[1,0]<stdout>:", "(RayWorker pid=3, ip=10.0.0.1) ", " 0: ", "[rank0]:", f"{prefix(1, 2)} "]
    for number, label in enumerate(labels):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = "".join(f"{label}{line}\n" for line in log().splitlines()) + "step 1 loss 2.0\n"
        assert read(folder, text, "select count(*), count(distinct host) from nccl_comms") == [[(2, 1)]]


def test_late_connections_belong_to_the_only_communicator_that_fits(tmp_path: Path) -> None:
    three = [line for rank in (0, 1) for line in start(rank, 4, comm="0x44", address=0xD000)]
    late = [
        f"{prefix(0, 2, thread=777)} Channel 00/0 : 0[0] -> 3[3] via SHM/direct/direct",
        f"{prefix(0, 2, thread=777)} Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct",
        f"{prefix(0, 2, thread=777)} Channel 00/1 : 0[0] -> 1[1] [send]    via NET/Socket/0 comm 0xa000 nRanks 02",
    ]
    text = log(more=[*(line.replace("node1:1001", "node0:1001") for line in three), *late])
    links, stats = read(
        tmp_path,
        text,
        "select comm, receiver, transport from nccl_links where rank = 0 and transport not like 'P2P%' order by all",
        "select what, count from stats",
    )
    assert links == [("0x44", 3, "SHM/direct/direct"), (COMM_ID, 1, "NET/Socket")]
    assert stats == [("nccl_links_ambiguous", 1)]


def test_adapters_and_settings(tmp_path: Path) -> None:
    text = log().replace(
        "Using network IB",
        "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"
        f"{prefix(0, 2)} NCCL_PROTO set by environment to simple\n{prefix(0, 2)} Using network Socket",
        1,
    )
    (rows,) = read(tmp_path, text, "select rank, network, adapters, settings from nccl_comms order by rank")
    assert rows == [(0, "Socket", "mlx5_0:1/RoCE mlx5_1:1/IB", "NCCL_PROTO=simple"), (1, "IB", None, None)]


def test_the_last_process_of_a_rank_counts_after_a_restart(tmp_path: Path) -> None:
    again = re.sub(r":100(\d):", r":200\1:", log(inside="SHM/direct/direct"))
    transports, stats = read(
        tmp_path, log() + again, "select distinct transport from nccl_links", "select rank, what from stats order by 1"
    )
    assert transports == [("SHM/direct/direct",)]
    assert stats == [(0, "nccl_processes_replaced"), (1, "nccl_processes_replaced")]


def test_a_log_without_a_communicator_of_all_ranks_is_refused(tmp_path: Path) -> None:
    other = re.sub(r"node0:100(\d):", r"node1:300\1:", log()).replace(COMM_ID, "0x77")
    with pytest.raises(BrokenSource, match="both rank 0 on different devices"):
        read(tmp_path, log() + other)


def test_without_communicators_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BrokenSource, match="NCCL_DEBUG_SUBSYS"):
        read(tmp_path, f"{prefix(0, 2)} Launch mode Parallel\n")


def test_logs_of_a_folder_are_taken_once_and_other_logs_are_not_mentioned(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "other.log").write_text("step 1\n")
    (folder / "job.log").write_text("downloading\n" * 20_000 + log())
    summary = ingest([folder], tmp_path / "run", workers=1)
    assert (summary.ranks_added, summary.skipped) == ((0, 1), ())
    (folder / "rank1.log").write_text(log())
    again = ingest([folder], tmp_path / "run", workers=1)
    assert [Path(name).name for name, _ in again.skipped] in ([["job.log"], ["rank1.log"]])
    assert "newer log" in again.skipped[0][1]


def test_a_trace_without_a_rank_keeps_rank_0_next_to_a_log(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]}'
    )
    (tmp_path / "job.log").write_text(log())
    ingest([tmp_path], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        assert run.rows("select rank, formats from ranks order by 1") == [(0, "kineto,nccl_log"), (1, "nccl_log")]


def test_a_hostile_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_FACTS", 3)
    monkeypatch.setattr(processes, "MOST_COMMUNICATORS", 1)
    more = [f"{prefix(0, 2)} {size} Bytes -> Algo 1 proto 2 time 9.0" for size in range(1, 6)]
    more += [f"{prefix(0, 2)} 5 Bytes -> Algo 99 proto 2 time 9.0", "x" * 100_000 + f"{prefix(0, 2)} NCCL"]
    more += start(0, 2, comm="0x9", address=0xE000)
    choices, stats = read(
        tmp_path, log(more=more), "select count(*) from nccl_choices", "select what, count from stats order by 1"
    )
    assert choices == [(3,)]
    assert stats == [("nccl_facts_dropped", 4), ("nccl_lines_unreadable", 1)]


@needs_traces
def test_the_log_of_a_real_job() -> None:
    """2 hosts with 8 A100 each on AWS, NCCL 2.18.3: every connection is counted as grep counts it."""
    path = TRACES / "aws-samples__awsome-distributed-training" / "nccl-tests_slurm-104.out.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    assert reader.recognises(text.encode()[: 64 << 10], path)
    claim = reader.rank_claim(path)
    assert (claim.rank, claim.source, claim.ranks) == (0, "recorded", 16)
    read = reader._read(ByteStream(path)).values()
    links = sum(count for one in read for comm in one.communicators for count in comm.links.values())
    assert links == text.count(" via ")
    assert all(not one.losses for one in read)


def test_channels_that_end_before_they_begin_are_not_a_choice(tmp_path: Path) -> None:
    line = f"{prefix(0, 2)} AllReduce: 8 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{5..2}}"
    choices, stats = read(tmp_path, log(more=[line]), "from nccl_choices", "select what, count from stats")
    assert (choices, stats) == ([], [("nccl_lines_unreadable", 1)])
