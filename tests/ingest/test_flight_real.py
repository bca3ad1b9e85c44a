"""A real run: two gloo ranks, two groups, torch.profiler and the Flight Recorder side by side."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lostflops.ingest import ingest
from lostflops.ingest.common.ops import canonical_op, dtype_bytes
from lostflops.ingest.formats.flight_recorder import dump as flight_dump
from lostflops.ingest.join.gloo_order import FlightEntries, GlooEvents, match
from lostflops.store.run import Run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

STEPS = 5
PROGRAM = f"""
import sys, torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json
from torch.profiler import ProfilerActivity, profile
folder = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
other = dist.new_group([0, 1], group_desc="other")

def step():
    buckets = [torch.ones(size) for size in (1000, 2000, 3000)]
    works = [dist.all_reduce(bucket, async_op=True) for bucket in buckets]
    works += [dist.all_reduce(torch.ones(500, dtype=torch.bfloat16), group=other, async_op=True)]
    for work in works:
        work.wait()
    for group in (None, other, other):
        dist.all_reduce(torch.ones(64), group=group)
    dist.barrier(group=other)

for _ in range(2):
    step()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
    for _ in range({STEPS}):
        step()
dist.barrier()
profiler.export_chrome_trace(f"{{folder}}/kineto_{{rank}}.json")
text = _dump_fr_trace_json()
open(f"{{folder}}/fr_{{rank}}.json", "wb").write(text if isinstance(text, bytes) else text.encode())
open(f"{{folder}}/_dump_{{rank}}", "wb").write(_dump_fr_trace())
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gloo")
    (folder / "program.py").write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    environment = os.environ | {"TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    # Its own session, so that a timeout ends the launcher and both ranks and nothing else.
    process = subprocess.Popen(
        [*command, f"--master-port={port}", str(folder / "program.py"), str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        pytest.fail("torchrun did not end within 120 s")
    assert process.returncode == 0, output
    return folder


def kineto(folder: Path, rank: int) -> tuple[list[dict], dict, int]:
    trace = json.loads((folder / f"kineto_{rank}.json").read_text(), parse_float=str)

    def nanoseconds(text) -> int:
        whole, _, fraction = str(text).partition(".")
        return int(whole) * 1000 + int(fraction.ljust(3, "0")[:3] or 0)

    base = trace["baseTimeNanoseconds"]
    timed = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    for event in timed:
        event["start"] = base + nanoseconds(event["ts"])
        event["stop"] = event["start"] + nanoseconds(event["dur"])
    profiler = next(event for event in timed if event.get("cat") == "Trace")
    gloo = sorted((event for event in timed if event["name"].startswith("gloo:")), key=lambda event: event["start"])
    return gloo, trace["distributedInfo"], profiler["start"]


def input_bytes(event: dict) -> int | None:
    arguments = event["args"]
    if "Input Dims" not in arguments:
        return None
    total = 0
    for (size,), dtype in zip(arguments["Input Dims"], arguments["Input type"], strict=True):
        total += size * dtype_bytes(dtype)
    return total


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.few(1)
def test_both_forms_of_a_dump_say_the_same(run, rank):
    dumps = []
    for name in (f"fr_{rank}.json", f"_dump_{rank}"):
        data = (run / name).read_bytes()
        assert flight_dump.recognises(data[:4096])
        assert flight_dump.rank_claim(run / name, {}) == (rank, "file name")
        dumps.append(flight_dump.parse_dump(data, run / name, rank))
    as_json, pickled = dumps
    # The dumps were taken one after the other, and only the pickled one has stacks.
    changing = {"source": None, "state": None}
    assert as_json.columns | changing == pickled.columns | changing
    assert "program.py(12): " in pickled.columns["source"][0]
    assert (as_json.backend, as_json.world_size) == ("gloo", None)
    assert set(as_json.columns["op"]) == {"all_reduce", "barrier"}
    assert as_json.columns["bytes_in"][:4] == [4000, 8000, 12000, 1000]


@pytest.mark.parametrize("rank", [0, 1])
def test_every_gloo_event_finds_its_entry(run, rank):
    events, job, profiled_from = kineto(run, rank)
    path = run / f"fr_{rank}.json"
    dump = flight_dump.parse_dump(path.read_bytes(), path, rank)
    members = {
        group["pg_name"]: flight_dump.GroupMembers(group["ranks"], group["pg_desc"]) for group in job["pg_config"]
    }
    dump = flight_dump.with_members(dump, members, rank)
    assert {row.group_id for row in dump.groups} == {"0@0-1", "1@0-1"}
    assert dump.world_size == 2
    flight = dump.columns
    found = match(
        GlooEvents(
            op=[canonical_op(event["name"]) for event in events],
            bytes_in=[input_bytes(event) for event in events],
            lane=[event["tid"] for event in events],
            start=[event["start"] for event in events],
            stop=[event["stop"] for event in events],
        ),
        FlightEntries(
            record=flight["record"],
            name=flight["name"],
            op=flight["op"],
            bytes_in=flight["bytes_in"],
            group=flight["group_id"],
            seq=flight["seq"],
            created=flight["created"],
        ),
        profiled_from,
    )
    assert len(events) == 8 * STEPS
    assert -1 not in found
    assert len(set(found)) == len(found)
    # Per step on the default group: three buckets, then one of 64 floats. Steps 0 and 1 were not profiled.
    default = sorted(flight["seq"][entry] for entry in found if flight["group_id"][entry] == "0@0-1")
    assert default == list(range(9, 9 + 4 * STEPS))
    sizes = {flight["bytes_in"][entry] for entry in found if flight["group_id"][entry] == "1@0-1"}
    assert sizes == {1000, 256, 0}


def test_a_trace_and_a_dump_of_every_rank_become_one_run(run, tmp_path):
    ingest([run / f"{kind}_{rank}.json" for kind in ("kineto", "fr") for rank in (0, 1)], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as opened:
        ranks = opened.sql("select rank, backend, world_size, formats from ranks order by rank").fetchall()
        assert ranks == [(rank, "gloo", 2, "kineto,flight_recorder") for rank in (0, 1)]
        query = """
            select rank, group_id, group_size, op, bytes_in, count(*), count(distinct seq) from collectives
            where order_source = 'flight_recorder' and metadata = 'gloo' group by all order by all
        """
        expected = [
            (rank, group, 2, op, size, times * STEPS, times * STEPS)
            for rank in (0, 1)
            for group, op, size, times in (
                ("0@0-1", "all_reduce", 256, 1),
                ("0@0-1", "all_reduce", 4000, 1),
                ("0@0-1", "all_reduce", 8000, 1),
                ("0@0-1", "all_reduce", 12000, 1),
                ("1@0-1", "all_reduce", 256, 2),
                ("1@0-1", "all_reduce", 1000, 1),
                ("1@0-1", "barrier", None, 1),
            )
        ]
        assert opened.sql(query).fetchall() == expected
        assert opened.sql("select count(*) from flight where group_id is null").fetchall() == [(0,)]
        assert opened.sql("select group_id, rank, position, size from groups order by all").fetchall() == [
            (group, rank, rank, 2) for group in ("0@0-1", "1@0-1") for rank in (0, 1)
        ]
