import dataclasses
import os
import pickle
import pickletools
import resource
import struct
import time
from contextlib import suppress
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.core.errors import BrokenSource
from lostflops.ingest.common import safe_pickle
from lostflops.ingest.common.safe_pickle import loads

keys = st.text() | st.binary() | st.booleans() | st.none() | st.integers(-(2**60) + 1, 2**60 - 1)
leaves = keys | st.floats(allow_nan=False) | st.integers(-(2**400), 2**400)
plain = st.recursive(
    leaves | st.sets(keys) | st.frozensets(keys),
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner) | st.lists(inner).map(tuple),
    max_leaves=30,
)


@given(plain, st.integers(2, 5))
def test_plain_data_is_read_as_pickle_reads_it(value, protocol):
    data = pickle.dumps(value, protocol)
    if protocol == 2 and any(opcode.name in ("GLOBAL", "REDUCE") for opcode, _, _ in pickletools.genops(data)):
        with pytest.raises(BrokenSource, match="code"):  # protocol 2 writes sets and bytes as calls
            loads(data)
    elif protocol == 3 and any(opcode.name == "GLOBAL" for opcode, _, _ in pickletools.genops(data)):
        with pytest.raises(BrokenSource, match="code"):
            loads(data)
    else:
        assert loads(data) == value


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_payload_does_not_run(tmp_path, protocol):
    marker = tmp_path / "ran"
    data = pickle.dumps({"version": "2.9", "entries": [Payload(marker)]}, protocol)
    with pytest.raises(BrokenSource):
        loads(data)
    assert not marker.exists()
    pickle.loads(data)
    assert marker.exists(), "the payload itself must work, or this proves nothing"


@pytest.mark.parametrize(
    ("data", "opcode"),
    [
        (b"\x80\x02cos\nsystem\n.", "GLOBAL"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "STACK_GLOBAL"),
        (b"\x80\x02(S'id'\nios\nsystem\n.", None),
        (b"\x80\x02(ios\nsystem\n.", "INST"),
        (b"\x80\x02(o.", "OBJ"),
        (b"\x80\x02NNR.", "REDUCE"),
        (b"\x80\x02NNb.", "BUILD"),
        (b"\x80\x02NN\x81.", "NEWOBJ"),
        (b"\x80\x04NNN\x92.", "NEWOBJ_EX"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02\x83\x01\x00.", "EXT2"),
        (b"\x80\x02\x84\x01\x00\x00\x00.", "EXT4"),
        (b"\x80\x02Pid\n.", "PERSID"),
        (b"\x80\x02NQ.", "BINPERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (pickle.dumps(datetime(2024, 1, 1)), "STACK_GLOBAL"),  # noqa: DTZ001
    ],
)
def test_opcodes_that_reach_for_code_are_refused_by_name(data, opcode):
    with pytest.raises(BrokenSource, match=f"{opcode} at offset" if opcode else "plain data"):
        loads(data, "_dump_0")


def shared_lists(depth: int) -> bytes:
    """Each list holds the one before it ten times."""
    body = b"]q\x00"
    for level in range(depth):
        body += b"](" + b"h" + bytes([level]) + (b"h" + bytes([level])) * 9 + b"eq" + bytes([level + 1])
    return b"\x80\x02(" + body + b"t."


HOSTILE = {
    "deep lists": b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b".",
    "deep tuples": b"\x80\x02N" + b"\x85" * 1_000_000 + b".",
    "billion laughs": shared_lists(20),
    "contains itself": b"\x80\x02]q\x00h\x00a.",
    "many lists": b"\x80\x02(" + b"]" * 20_000_000 + b"t.",
    "many sets": b"\x80\x04(" + b"\x8f" * 20_000_000 + b"t.",
    "many marks": b"\x80\x02" + b"(" * 20_000_000,
    "false length of text": b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b"abc.",
    "false length of bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**63 - 1) + b"abc.",
    "false length of integer": b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"abc.",
    "negative length of integer": b"\x80\x02\x8b" + struct.pack("<i", -1) + b"abc.",
    "huge integer": b"\x80\x02\x8b" + struct.pack("<i", 10_000_000) + b"\x7f" * 10_000_000 + b".",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"abc.",
    "memo far away": b"\x80\x02Nr\xff\xff\xff\xffN.",
    "unknown memo": b"\x80\x02h\x05.",
    "exponential hash": b"\x80\x02}N" + b"q\x00h\x00\x86" * 200 + b"Ns.",
    "colliding keys": b"\x80\x02}(" + b"".join(
        b"\x8a\x0c" + (n * (2**61 - 1)).to_bytes(12, "little") + b"N" for n in range(1, 50_000)
    ) + b"u.",
    "unhashable key": b"\x80\x02}]Ns.",
    "key without value": b"\x80\x02}(Nu.",
    "append to nothing": b"\x80\x02Na.",
    "append to a number": b"\x80\x02K\x01Na.",
    "no mark": b"\x80\x02]e.",
    "pop a mark": b"\x80\x02](a.",
    "stop too early": b"\x80\x02(].",
    "stop with nothing": b"\x80\x02.",
    "future protocol": b"\x80\x09N.",
    "nothing": b"",
    "text": b"{}",
    "protocol 0": pickle.dumps({"a": 1}, 0),
    "too large": bytes(safe_pickle.FLIGHT_RECORDER.input_bytes + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_quickly_and_in_little_memory(name):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    with pytest.raises(BrokenSource, match=r"^_dump_0: "):
        loads(HOSTILE[name], "_dump_0")
    assert time.process_time() - started < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 512 << 10


@given(st.data())
def test_a_damaged_pickle_is_refused_or_read_but_nothing_else(data):
    whole = pickle.dumps({"version": "2.9", "entries": [{"a": [1, 2.5, None, True], "b": ("x", "é")}]}, 4)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BrokenSource):
        loads(whole[:cut])
    flipped = bytearray(whole)
    flipped[cut] = data.draw(st.integers(0, 255))
    with suppress(BrokenSource):
        loads(bytes(flipped))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read_but_nothing_else(data):
    with suppress(BrokenSource):
        loads(b"\x80\x04" + data)


SHARED = [{"line": number} for number in range(400)]


def test_runs_of_shared_parts_are_those_that_pickle_reads() -> None:
    stacks = [SHARED[begin : begin + 90] + SHARED[:3] for begin in range(0, 400, 7)]
    data = pickle.dumps([SHARED, stacks], 4)
    assert data.count(b"j") > 1000
    found = safe_pickle.loads(data)
    assert found == [SHARED, stacks]
    assert found[1][0][0] is found[0][0]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_run_that_is_cut_short_is_damage(cut: int) -> None:
    data = pickle.dumps([SHARED, SHARED[300:310]], 4)
    end = data.rindex(b"j")
    with pytest.raises(BrokenSource, match="damaged or cut short"):
        safe_pickle.loads(data[: end + cut])


def test_a_run_counts_as_its_opcodes() -> None:
    few = dataclasses.replace(safe_pickle.FLIGHT_RECORDER, opcodes=5000)
    assert safe_pickle.loads(pickle.dumps([SHARED, SHARED], 4), "made", few) == [SHARED, SHARED]
    with pytest.raises(BrokenSource, match="more than 5,000 opcodes"):
        safe_pickle.loads(pickle.dumps([SHARED, SHARED[300:] * 60], 4), "made", few)
