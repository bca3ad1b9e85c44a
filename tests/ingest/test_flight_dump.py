import json
import pickle
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.core.errors import BrokenSource
from lostflops.ingest.formats.flight_recorder.dump import (
    GroupMembers,
    load,
    parse_dump,
    rank_claim,
    recognises,
    with_members,
)
from lostflops.store.tables import FLIGHT

DUMPS = Path(__file__).parents[2].parent / "shared" / "traces" / "NVIDIA__nvidia-resiliency-ext" / "fr_traces"
ENTRY = {
    "record_id": 7,
    "pg_id": 0,
    "process_group": ("0", "default_pg"),
    "collective_seq_id": 3,
    "p2p_seq_id": 0,
    "op_id": 4,
    "profiling_name": "nccl:_all_gather_base",
    "time_created_ns": 1_700_000_000_000_000_000,
    "input_sizes": [[4, 2]],
    "input_dtypes": ["BFloat16"],
    "output_sizes": [[8, 2]],
    "output_dtypes": ["BFloat16"],
    "state": "completed",
    "time_discovered_started_ns": 1_700_000_000_000_000_010,
    "time_discovered_completed_ns": 1_700_000_000_000_000_020,
    "retired": True,
    "timeout_ms": 600_000,
    "is_p2p": False,
    "frames": [
        {"name": "all_gather", "filename": "/env/torch/distributed/distributed_c10d.py", "line": 9},
        {"name": "train", "filename": "/job/train.py", "line": 12},
    ],
}
DUMP = {
    "version": "2.9",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {},
    "entries": [ENTRY],
}


def dump_of(*entries: object, **changes: object):
    return parse_dump(pickle.dumps(DUMP | {"entries": list(entries)} | changes, 4), Path("_dump_1"), 1)


def test_an_entry_becomes_a_row_of_the_flight_table():
    dump = dump_of(ENTRY)
    assert list(dump.columns) == [name for name in FLIGHT.column_names() if name != "rank"]
    assert {name: values[0] for name, values in dump.columns.items()} == {
        "record": 7,
        "group_id": "0@0-1",
        "group_name": "0",
        "seq": 3,
        "p2p_seq": None,
        "op_id": 4,
        "op": "all_gather",
        "name": "nccl:_all_gather_base",
        "is_p2p": False,
        "state": "completed",
        "created": 1_700_000_000_000_000_000,
        "started": 1_700_000_000_000_000_010,
        "completed": 1_700_000_000_000_000_020,
        "dtype": "BFloat16",
        "bytes_in": 16,
        "bytes_out": 32,
        "in_shapes": "[[4, 2]]",
        "out_shapes": "[[8, 2]]",
        "source": "/job/train.py(12): train",
    }
    assert dump.groups == [("0@0-1", 1, 2, "0", "default_pg", "nccl")]
    assert (dump.backend, dump.world_size, dump.version, dump.stats) == ("nccl", 2, "2.9", [])


def test_json_writes_zero_for_times_that_were_not_seen():
    entry = ENTRY | {"time_discovered_started_ns": 0, "time_discovered_completed_ns": 0, "state": "scheduled"}
    dump = parse_dump(json.dumps(DUMP | {"entries": [entry]}).encode(), Path("fr_1.json"), 1)
    assert (dump.columns["started"], dump.columns["completed"]) == ([None], [None])
    assert dump.stats == []


def test_a_transfer_has_the_sequence_of_transfers_only():
    entry = ENTRY | {"profiling_name": "nccl:send 0->1", "is_p2p": True, "p2p_seq_id": 5}
    columns = dump_of(entry).columns
    assert (columns["op"], columns["seq"], columns["p2p_seq"]) == (["send"], [None], [5])


def test_incomplete_entries_are_kept_and_counted():
    bare = {"profiling_name": "nccl:all_reduce", "record_id": 1}
    dump = dump_of(bare, ENTRY | {"input_dtypes": ["Mystery"], "record_id": "x", "state": "lost"})
    assert dump.columns["op"] == ["all_reduce", "all_gather"]
    assert dump.columns["record"] == [1, None]
    assert dump.columns["bytes_in"] == [None, None]
    assert dump.columns["state"] == [None, None]
    assert {what: (effect, count) for what, effect, count, _ in dump.stats} == {
        "flight_fields_missing": ("missing", 13),
        "flight_fields_unreadable": ("dropped", 2),
        "flight_groups_unknown": ("missing", 1),
    }


def test_malformed_entries_are_dropped_and_counted():
    dump = dump_of(ENTRY, 3, {}, {"profiling_name": 5}, None)
    assert len(dump.columns["op"]) == 1
    assert dump.stats[0][:3] == ("flight_entries_malformed", "dropped", 4)


def test_a_gloo_work_that_is_over_has_no_state():
    entry = ENTRY | {"profiling_name": "gloo:all_reduce", "state": "scheduled"}
    dump = dump_of(entry, entry | {"retired": False})
    assert dump.columns["state"] == [None, "scheduled"]
    assert [stat[:3] for stat in dump.stats] == [("flight_gloo_state_unknown", "note", 1)]


def test_members_can_be_added_later():
    dump = dump_of(ENTRY, pg_config={"": {"name": "", "desc": "", "ranks": "[]"}})
    assert (dump.columns["group_id"], dump.groups) == ([None], [])
    assert [stat[:3] for stat in dump.stats] == [("flight_groups_unknown", "missing", 1)]
    known = with_members(dump, {"0": GroupMembers([0, 1], "default_pg")}, 1)
    assert (known.columns["group_id"], known.world_size, known.stats) == (["0@0-1"], 2, [])
    assert dump.columns["group_id"] == [None]


def test_a_dump_of_another_rank_is_noted():
    dump = parse_dump(pickle.dumps(DUMP), Path("_dump_5"), 5)
    assert dump.groups[0].position is None
    assert [stat[0] for stat in dump.stats] == ["flight_rank_not_in_group"]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("_dump_3", 3),
        ("nccl_trace_rank_3", 3),
        ("comm_lib_trace_rank_11", 11),
        ("rank3_fr.json", 3),
        ("fr_3.json", 3),
        ("fr_trace-12.pkl", 12),
        ("host7_dump_4.pickle", 4),
        ("job_rank-2.json.gz", 2),
        ("fr.json", None),
        ("dump_20240131120000", None),
        ("notes3.json", None),
    ],
)
def test_rank_from_the_name(name, rank):
    assert rank_claim(Path(name), {}) == ((rank, "file name") if rank is not None else (None, ""))


def test_rank_from_the_content_comes_first():
    assert rank_claim(Path("_dump_3"), {"rank": 9}) == (9, "recorded")


def test_recognised_by_content():
    for data in (pickle.dumps(DUMP, 2), pickle.dumps(DUMP, 5), json.dumps(DUMP).encode()):
        assert recognises(data[:4096])
    kineto = b'{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "pg_config": [], "nccl_version": "2.28"}}'
    for data in (b"", b"{}", pickle.dumps([1]), kineto):
        assert not recognises(data)


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b"3", b"{}", b"[" * 100_000, pickle.dumps([1]), pickle.dumps({"entries": 3}), b"\x80\x02", b"\xff{"],
)
def test_what_cannot_be_read_says_so(data):
    with pytest.raises(BrokenSource, match="fr_0"):
        parse_dump(data, Path("fr_0"), 0)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ENTRY, *DUMP]), inner, max_size=4),
    max_leaves=8,
)


@given(junk, st.sampled_from([*ENTRY]), st.sampled_from([*DUMP]))
def test_junk_in_any_field_never_breaks_more_than_the_file(value, field, top):
    dump_of(ENTRY | {field: value})
    try:
        parse_dump(pickle.dumps(DUMP | {top: value}, 4), Path("_dump_0"), 0)
    except BrokenSource:
        assert top == "entries"


real = pytest.mark.skipif(not DUMPS.is_dir(), reason="the shared traces are not here")


@real
@pytest.mark.parametrize(
    ("fault", "entries"), [("gpu_error_1st", 289), ("gpu_error_2nd", 278), ("lock_gil_1st", 142), ("lock_gil_2nd", 216)]
)
def test_real_dumps(fault, entries):
    paths = sorted((DUMPS / fault).glob("_dump_*"))
    assert len(paths) == 16
    dumps = {}
    for path in paths:
        data = path.read_bytes()
        assert recognises(data[:4096])
        rank, source = rank_claim(path, load(data, path))
        assert source == "file name"
        dumps[rank] = parse_dump(data, path, rank)
    assert sorted(dumps) == list(range(16))
    assert sum(len(dump.columns["op"]) for dump in dumps.values()) == entries
    assert {state for dump in dumps.values() for state in dump.columns["state"]} == {"scheduled"}
    for rank, dump in dumps.items():
        assert (dump.version, dump.world_size, dump.stats) == ("2.9", 16, [])
        assert dump.backend == ("nccl" if dump.columns["op"] else None)
        assert None not in dump.columns["group_id"] + dump.columns["op"] + dump.columns["bytes_in"]
        assert dump.groups[0][:5] == ("0@0-15", rank, 16, "0", "default_pg")


@real
def test_groups_of_a_real_rank():
    path = DUMPS / "gpu_error_1st" / "_dump_0"
    dump = parse_dump(path.read_bytes(), path, 0)
    ids = {row.description: row.group_id for row in dump.groups}
    assert ids["TENSOR_MODEL_PARALLEL_GROUP"] == "35@0-1"
    assert ids["PIPELINE_MODEL_PARALLEL_GROUP"] == "43@0-12/4"
    assert ids["MODEL_PARALLEL_GROUP"] == "33@0,1,4,5,8,9,12,13"
    assert len(dump.groups) == 13
    last = {name: values[-1] for name, values in dump.columns.items()}
    assert (last["group_id"], last["seq"], last["op"]) == ("35@0-1", 39416, "all_gather")
    assert (last["bytes_in"], last["bytes_out"]) == (41_943_040, 83_886_080)


@real
def test_ops_of_a_real_set():
    ops: Counter[str] = Counter()
    for path in (DUMPS / "gpu_error_1st").glob("_dump_*"):
        ops.update(parse_dump(path.read_bytes(), path, 0).columns["op"])
    assert ops == {
        "all_gather": 89,
        "all_to_all": 44,
        "reduce_scatter": 44,
        "all_reduce": 32,
        "broadcast": 18,
        "send": 31,
        "recv": 31,
    }
