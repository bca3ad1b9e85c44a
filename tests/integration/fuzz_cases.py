"""Base inputs of the fuzz test, the ways to damage them, and the cases made of both.

A case is a number: the same number and seed always give the same file.
"""

from __future__ import annotations

import copy
import functools
import gzip
import json
import pickle
import random
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from tests.integration.fuzz_exports import EXPORT_MUTATIONS, export

Json = dict[str, Any]

# Base inputs.

_COMM = {
    "Collective name": "allreduce",
    "In msg nelems": 1024,
    "Out msg nelems": 1024,
    "Group size": 2,
    "dtype": "BFloat16",
    "In split size": "[]",
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1]",
    "Seq": 12,
}
_SHAPES = {
    "Concrete Inputs": ["", "[4, 4]", "True"],
    "Input type": ["c10::BFloat16", "ScalarList", "Scalar"],
    "Input Strides": [[64, 1], [], []],
    "Input Dims": [[32, 64], [], []],
}
_DEVICE = {"device": 0, "context": 1, "stream": 7}
_KERNEL = {
    "registers per thread": 96,
    "shared memory": 1024,
    "blocks per SM": 1.5,
    "warps per SM": 6.0,
    "grid": [8, 12, 1],
    "block": [128, 1, 1],
    "est. achieved occupancy %": 14,
}
_MEMORY = {
    "Addr": 140001,
    "Bytes": 512,
    "Total Allocated": 1024,
    "Total Reserved": 4096,
    "Device Type": 1,
    "Device Id": 0,
}
_STACK = "train.py(12): step;/usr/lib/python3.11/site-packages/torch/nn/module.py(9): __call__"


def _timed(  # noqa: PLR0917 - a table of events is easier to read without names
    category: str, name: str, ts: float, dur: float, args: Json, tid: Any = 81, pid: Any = 81
) -> Json:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _new_events() -> list[Json]:
    t = 6322354273000.0
    on_device = {"pid": 0, "tid": 7}
    return [
        _timed("user_annotation", "ProfilerStep#3", t, 900.5, {"External id": 1, "Ev Idx": 0}),
        _timed("cpu_op", 'aten::mm "{[quoted\\]}"', t + 1.39, 89.6, {"External id": 2, "Sequence number": 7} | _SHAPES),
        _timed("cpu_op", "aten::add", t + 3.5, 1.25, {"External id": 3, "Fwd thread id": 1, "Call stack": _STACK}),
        _timed("python_function", "train.py(12): step", t + 4, 30.0, {"Python id": 1}),
        _timed("cpu_op", "record_param_comms", t + 100.1, 20.0, {"External id": 4, "Rank": 0} | _COMM | _SHAPES),
        {"ph": "s", "id": 1, "pid": 81, "tid": 81, "ts": t + 1.39, "cat": "fwdbwd", "name": "fwdbwd"},
        {"ph": "f", "id": 1, "pid": 81, "tid": 82, "ts": t + 9.5, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
        _timed("cuda_runtime", "cudaLaunchKernel", t + 2.25, 1.5, {"External id": 2, "cbid": 211, "correlation": 11}),
        {"ph": "s", "id": 11, "pid": 81, "tid": 81, "ts": t + 2.25, "cat": "ac2g", "name": "ac2g"},
        _timed("kernel", "gemm<int, 4>", t + 8, 40.9, {"External id": 2, "correlation": 11} | _DEVICE | _KERNEL, 7, 0),
        {"ph": "f", "id": 11, **on_device, "ts": t + 8, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        _timed("cuda_driver", "cuLaunchKernel", t + 101.5, 1.5, {"External id": 4, "cbid": 307, "correlation": 12}),
        _timed(
            "kernel", "ncclDevKernel_AllReduce", t + 110, 60.1, {"correlation": 12} | _DEVICE | _KERNEL | _COMM, 7, 0
        ),
        _timed("cuda_runtime", "cudaMemcpyAsync", t + 60.5, 2.5, {"cbid": 41, "correlation": 13}),
        _timed("gpu_memcpy", "Memcpy DtoD", t + 71, 1.7, {"correlation": 13, "bytes": 2048} | _DEVICE, 7, 0),
        _timed("gpu_memset", "Memset (Device)", t + 75, 0.8, {"correlation": 14, "bytes": 64} | _DEVICE, 7, 0),
        _timed("cuda_sync", "Stream Wait Event", t + 80, 5.0, _DEVICE | {"wait_on_stream": 9, "correlation": 15}, 7, 0),
        _timed("gpu_user_annotation", "ProfilerStep#3", t + 8, 200.0, {"External id": 1}, 7, 0),
        _timed("user_annotation", "gloo:all_reduce", t + 300, 20.0, {"External id": 5} | _SHAPES),
        _timed("overhead", "Buffer Flush", t + 400, 9.5, {}),
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 81, "tid": 81, "ts": t + 5, "args": _MEMORY},
        {"ph": "M", "name": "thread_name", "pid": 81, "tid": 81, "ts": t, "args": {"name": "thread 81 (python)"}},
        _timed("user_annotation", "ProfilerStep#4", t + 901, 100.5, {"External id": 6}),
        _timed("Trace", "PyTorch Profiler (0)", t, 1002.0, {"Op count": 0}, "PyTorch Profiler", "Spans"),
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": t + 1002},
    ]


def _old_events() -> list[Json]:
    """Names of categories and identifiers as profilers before 1.13 wrote them, times in whole microseconds."""
    t = 1621401187223000
    numbers = {"external id": 7, "correlation": 21}
    return [
        _timed("Operator", "aten::mm", t, 50, {"External id": 7, "Input Dims": [[4, 4]]}, "1234 (thread)"),
        _timed("Runtime", "cudaLaunchKernel", t + 5, 3, numbers),
        _timed("Kernel", "volta_sgemm", t + 12, 30, numbers | _DEVICE | _KERNEL, "stream 7", 0),
        _timed("Memcpy", "Memcpy HtoD", t + 50, 3, numbers | _DEVICE | {"bytes": 4096}, "stream 7", 0),
        _timed("Memset", "Memset (Device)", t + 60, 1, numbers | _DEVICE | {"bytes": 8}, "stream 7", 0),
        _timed("mtia_ccp_events", "dma_request", t + 70, 1, {"size": 64, "correlation": 3}, 3, 1),
        _timed("unheard_of", "mystery", t + 80, 1, {}),
        {"ph": "B", "name": "begin", "pid": 1, "tid": 1, "ts": t},
    ]


_HEADER: Json = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85028372480, "numSms": 132}],
    "distributedInfo": {
        "backend": "nccl",
        "rank": 0,
        "world_size": 2,
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": [0, 1]}],
    },
    "record_shapes": 1,
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1759300074000000000,
}
_ENTRY: Json = {
    "record_id": 7,
    "pg_id": 0,
    "process_group": ["0", "default_pg"],
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
    "frames": [{"name": "train", "filename": "/job/train.py", "line": 12}],
}
_DUMP: Json = {
    "version": "2.9",
    "comm_lib_version": "2.27.5",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 4, "last_started_collective": 4, "last_completed_collective": 3}},
    "entries": [_ENTRY, _ENTRY | {"record_id": 8, "collective_seq_id": 4, "profiling_name": "gloo:all_reduce"}],
}


def _pretty(header: Json, events: Iterable[Json], trailer: str = '"traceName": "trace.json"') -> bytes:
    """In Kineto's layout: every event on several lines."""
    texts = []
    for event in events:
        rest = ", ".join(
            f"{json.dumps(key)}: {json.dumps(event[key])}" for key in event if key not in ("ts", "dur", "args")
        )
        times = ", ".join(f"{json.dumps(key)}: {event[key]}" for key in ("ts", "dur") if key in event)
        inner = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in event.get("args", {}).items())
        args = f',\n    "args": {{\n      {inner}\n    }}' if "args" in event else ""
        texts.append(f"  {{\n    {rest},\n    {times}{args}\n  }}")
    top = "".join(f"    {json.dumps(key)}: {json.dumps(value)},\n" for key, value in header.items())
    return f'\n  {{\n{top}  "traceEvents": [\n{",".join(texts)}\n  ],\n  {trailer}\n}}\n'.encode()


@functools.cache
def bases() -> dict[str, bytes]:
    compact = json.dumps(_HEADER | {"traceEvents": _new_events()}, separators=(",", ":")).encode()
    return {
        "pretty": _pretty(_HEADER, _new_events()),
        "compact": compact,
        "header last": json.dumps({"traceEvents": _new_events()} | _HEADER).encode(),
        "old": _pretty({"schemaVersion": 1}, _old_events()),
        "bare array": json.dumps(_old_events()).encode(),
        "flight json": json.dumps(_DUMP).encode(),
        "flight pickle 2": pickle.dumps(_DUMP, 2),
        "flight pickle 4": pickle.dumps(_DUMP, 4),
        "nsys": export(),
    }


def is_pickle(base: str) -> bool:
    return base.startswith("flight pickle")


def plain_name(base: str) -> str:
    """What a file of this kind is called."""
    return "_dump_0" if is_pickle(base) else "rank0.sqlite" if base == "nsys" else "rank0_trace.json"


# Mutations.

_VALUE = re.compile(
    rb'(?P<key>"[^"\\\n]{1,40}"):\s*(?P<value>"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|\[[^\[\]{}]*\]|\{[^{}]*\})'
)
_NUMBERS = [
    b"1e400", b"-1e400", b"1E+999999999", b"1e-400", b"9" * 40, b"-" + b"9" * 40, b"9" * 400, b"9" * 5000,
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809",
    b"18446744073709551616", b"4611686018427387904", b"2147483648", b"-2147483649", b"4294967296", b"1e18", b"1e15",
    b"0." + b"3" * 400, b"1e-5", b"-0", b"-0.0", b"-1", b"0", b"007", b"1.", b".5", b"+1", b"0x10", b"1_000", b"1e",
    b"--1", b'"12"', b'"-1e5"', b'"' + b"8" * 5000 + b'"', b'"9e999999999999999999"', b"1.7976931348623157e308",
]  # fmt: skip
_NOT_NUMBERS = [
    b"NaN", b"nan", b"-nan", b"Infinity", b"-Infinity", b"inf", b"-inf", b"NAN", b"nan(ind)", b'"NaN"', b'"inf"',
    b'"-Infinity"', b'"sNaN"', b'"nan123456"',
]  # fmt: skip
_WRONG = [
    b"null", b"true", b"false", b'"text"', b'""', b"[]", b"{}", b"[1, 2, 3]", b"[[[]]]", b'{"a": {"b": [1]}}',
    b'[{"ph": "X"}]', b'"\\ud800"', b'"\\udfff\\ud800"', b'"\\u0000"', b'"\\\\"', b'"\xff\xfe"', b'"\xed\xa0\x80"',
    b'"' + b"a" * 1000 + b'"', b"-5", b"1.5", b"[" * 50 + b"]" * 50, b'"\xf0\x9f\x92\xa9"', b'"\\"}, {\\""', b"'x'",
    b'"ProfilerStep#999999999"', b'"ProfilerStep#99999999999999999999"', b'"[0, 1, ' + b"[" * 3000 + b'"', b'"[-1]"',
    b'"[memory]"', b'"record_param_comms"', b'"gloo:all_reduce"', b'"kernel"', b'"X"', b'"\\u202e\\n\\t"',
]  # fmt: skip

Mutation = Callable[[random.Random, bytes], bytes]


def replace_value(chance: random.Random, data: bytes, values: list[bytes]) -> bytes:
    spots = list(_VALUE.finditer(data))
    if not spots:
        return data
    spot = chance.choice(spots)
    if chance.random() < 0.15:  # everywhere that key stands
        key, value = re.escape(spot["key"]), chance.choice(values)
        return re.sub(
            key + rb":\s*(?:" + _VALUE.pattern.partition(rb":\s*")[2] + rb")",
            lambda _: spot["key"] + b": " + value,
            data,
        )
    return data[: spot.start("value")] + chance.choice(values) + data[spot.end("value") :]


def odd_number(chance: random.Random, data: bytes) -> bytes:
    return replace_value(chance, data, _NUMBERS)


def not_a_number(chance: random.Random, data: bytes) -> bytes:
    return replace_value(chance, data, _NOT_NUMBERS)


def wrong_type(chance: random.Random, data: bytes) -> bytes:
    return replace_value(chance, data, _WRONG)


def odd_element(chance: random.Random, data: bytes) -> bytes:
    """A number inside a list, or a text that holds one: shapes, grids, members of groups."""
    spots = list(re.finditer(rb"(?<=[\[ ,])\d+(?=[,\]])", data))
    if not spots:
        return data
    spot = chance.choice(spots)
    return data[: spot.start()] + chance.choice([*_NUMBERS, b"1000000000", b"3000000"]) + data[spot.end() :]


def truncate(chance: random.Random, data: bytes) -> bytes:
    """Anywhere, but as often at a place of its own kind: in a string, a number, between events, in the header."""
    kind = chance.randrange(5)
    patterns = (rb'"[^"]{2,}"', rb"\d{3,}", rb"\}\s*,\s*\{", rb'"traceEvents"', rb".")
    spots = list(islice(re.finditer(patterns[kind], data, re.DOTALL), 20_000))
    if not spots:
        return data[: chance.randrange(len(data) + 1)]
    spot = chance.choice(spots)
    return data[: chance.randint(spot.start(), spot.end())]


def flip_bits(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5, 40))):
        if changed:
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def insert_bytes(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    new = chance.choice((
        bytes([chance.randrange(256)]), chance.randbytes(chance.randrange(1, 64)), b'"', b"\\", b"{", b"}", b"[",
        b"]", b",", b'\\"', b"\x00", b"\xff", b"\xef\xbb\xbf", b"\n" * 50, b"}, {", b"]}", b"/* x */",
        b"\x1f\x8b", b'"a": 1,',
    ))  # fmt: skip
    return data[:at] + new + data[at:]


def delete_bytes(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + data[at + chance.choice((1, 1, 2, 10, 200)) :]


def swap_brackets(chance: random.Random, data: bytes) -> bytes:
    spots = [spot.start() for spot in re.finditer(rb'[{}\[\]",:]', data)]
    changed = bytearray(data)
    for _ in range(chance.choice((1, 2, 8))):
        if spots:
            a, b = chance.choice(spots), chance.choice(spots)
            changed[a], changed[b] = changed[b], changed[a]
    return bytes(changed)


def nest_deeply(chance: random.Random, data: bytes) -> bytes:
    depth = chance.choice((600, 5_000, 100_000))
    opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")))
    closed = chance.choice((0, 0, depth, depth - 1, depth + 1))
    return replace_value(chance, data, [opening * depth + b"1" + closing * closed])


def repeat_key(chance: random.Random, data: bytes) -> bytes:
    spots = list(_VALUE.finditer(data))
    if not spots:
        return data
    first, second = chance.choice(spots), chance.choice(spots)
    pair = first["key"] + b": " + (second["value"] if chance.random() < 0.7 else chance.choice(_WRONG))
    at = (first if chance.random() < 0.5 else second).start()
    return data[:at] + (pair + b", ") * chance.choice((1, 1, 3, 2000)) + data[at:]


def repeat_events(chance: random.Random, data: bytes) -> bytes:
    """Blocks of events, so that the pieces of reading and the order of rows matter."""
    spots = [spot.start() + 1 for spot in re.finditer(rb"\}\s*,\s*\{", data)]
    if len(spots) < 2:
        return data
    start, stop = sorted(chance.sample(spots, 2))
    return data[:stop] + data[start:stop] * chance.choice((1, 5, 200)) + data[stop:]


def damage_text(chance: random.Random, data: bytes) -> bytes:
    spots = list(re.finditer(rb'"(?:[^"\\]|\\.)*"', data))
    if not spots:
        return data
    spot = chance.choice(spots)
    new = chance.choice((
        b"\\ud800", b"\\udc00\\ud800", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\\u00",
        b"\\x41",         b"\x01", b"\n", b"\x00", b"\\", b"\xe2\x80", b"\\u0000", b"}, {", b'\\"}, {\\"',
        b"\\ud83d\\ude00", b"\x7f",
    ))  # fmt: skip
    at = chance.randrange(spot.start() + 1, spot.end())
    return data[:at] + new + data[at:]


def huge_text(chance: random.Random, data: bytes) -> bytes:
    size = chance.choice((100_000, 4 << 20, 9 << 20, 40 << 20))
    unit = chance.choice((b"a", b"\\\\", b"}, {", b"\\n", b"\xc3\xa9", b"[", b"\\u0041", b" "))
    return replace_value(chance, data, [b'"' + unit * (size // len(unit)) + chance.choice((b'"', b'"', b""))])


def many_texts(chance: random.Random, data: bytes) -> bytes:
    """As many different names, shapes, lanes or numbers as events."""
    key = chance.choice(
        (b'"name"', b'"Input Dims"', b'"tid"', b'"correlation"', b'"stream"', b'"cat"', b'"ts"', b'"id"')
    )
    event = b'{"ph": "X", "cat": "kernel", "name": "k", "pid": 1, "tid": 1, "ts": 1, "dur": 1, %s: %s}'
    count = chance.choice((300, 5_000))
    odd = chance.choice((b'"n%d"', b"%d", b"%d000000000", b"[%d]", b'"ProfilerStep#%d"'))
    events = b",".join(event % (key, odd % number) for number in range(count))
    return re.sub(rb'("traceEvents"\s*:\s*\[)', lambda opening: opening[1] + events + b",", data, count=1)


def nothing_much(chance: random.Random, data: bytes) -> bytes:
    tiny: tuple[bytes, ...] = (
        b"", b" ", b"\n", b"{", b"[", b"{}", b"[]", b'{"traceEvents"', b'{"traceEvents":', b'{"traceEvents": [',
        b"\x80\x04", b'{"traceEvents": []}', b'{"traceEvents": [,]}', b'{"traceEvents": [{}]}',
        b'{"traceEvents": [1, "a", null]}',
        b'{"traceEvents": {}}', b'{"traceEvents": null}', b"\x1f\x8b", b'[{"ph"', b'[{"ph": "X"}]',
        b"\xef\xbb\xbf" + data,
        b'{"a": {"traceEvents": [{"ph": "X"}]}}', b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1}]} x', data + data,
        b'"traceEvents": [', b'{"pg_status": {}, "entries": []}', b'{"pg_status": 1}', b"\x80\x04version entries.",
    )  # fmt: skip
    return chance.choice(tiny)


JSON_MUTATIONS: tuple[tuple[int, Mutation], ...] = (
    (14, truncate),
    (14, flip_bits),
    (8, insert_bytes),
    (8, delete_bytes),
    (14, odd_number),
    (8, not_a_number),
    (4, odd_element),
    (14, wrong_type),
    (6, swap_brackets),
    (6, damage_text),
    (5, repeat_key),
    (3, repeat_events),
    (2, nothing_much),
    (1, nest_deeply),
    (1, many_texts),
)
HEAVY_MUTATIONS: tuple[Mutation, ...] = (huge_text, nest_deeply, many_texts)
MUST_TELL = {"truncate", "odd_number", "not_a_number", "wrong_type"}
"""After one of these alone, fewer rows than in the base input must show in `stats`."""


def splice_opcodes(chance: random.Random, data: bytes) -> bytes:
    """Calls to code, lengths that lie, marks, memos and lists that grow."""
    at = chance.randrange(2, len(data))
    new = chance.choice((
        b"cos\nsystem\n", b"\x8c\x02os\x8c\x06system\x93", b"R", b"b", b"\x81", b"(" * 2000, b"]" * 5000,
        b"2" * 10, b"0" * 9,
        b"X\xff\xff\xff\xff", b"\x8d" + b"\xff" * 8, b"\x8b\xff\xff\xff\x7f", b"\x8a\xff" + b"\x7f" * 255, b"e", b"s",
        b"u",
        b"]q\x00h\x00a", b"}\x94" + b"h\x00" * 500, b"G\x7f\xf8\0\0\0\0\0\0", b"\x95" + b"\xff" * 8, b".", b"Pid\n",
        b"N",
        b"(" + b"N" * 100_000 + b"t", b"]" + b"(" + b"]" * 50_000 + b"e", b"I99999999999999999999\n", b"F1e999\n",
        b"\x97",
    ))  # fmt: skip
    return data[:at] + new + data[at:]


def pickle_of_odd_values(chance: random.Random, data: bytes) -> bytes:
    document = copy.deepcopy(_DUMP)
    entry = chance.choice(document["entries"])
    deep: list[Any] = []
    for _ in range(chance.choice((10, 80))):
        deep = [deep]
    shared: list[Any] = []
    for _ in range(30):
        shared = [shared, shared]
    values: list[Any] = [
        None,
        True,
        -1,
        1 << 70,
        -(1 << 63),
        1e300,
        float("nan"),
        b"\xff",
        "\ud800",
        "x" * 5000,
        [],
        {},
        (),
        deep,
        shared,
    ]
    values += [{1: 2}, [[1, "a"]], [[-1]], [[1 << 62, 1 << 62]], {"a": None}, "[0, 1, 1000000000000]", set(), "\x00"]
    target = chance.choice((entry, entry, document, document["pg_config"]["0"], document["pg_config"]))
    target[chance.choice(list(target))] = chance.choice(values)
    try:
        return pickle.dumps(document, chance.choice((2, 4, 5)))
    except UnicodeEncodeError:
        return data


PICKLE_MUTATIONS: tuple[Mutation, ...] = (
    truncate,
    flip_bits,
    insert_bytes,
    delete_bytes,
    splice_opcodes,
    pickle_of_odd_values,
)
BINARY_MUTATIONS = {"nsys": (truncate, flip_bits, insert_bytes, delete_bytes, *EXPORT_MUTATIONS)}

# Gzip.

_FILLERS = (b"\x00", b" ", b"{},", b"[", b"1", b"\\", b'{"ph":"X","ts":1,"dur":1},', b'"', b"\n\n", b"},{")


@functools.cache
def _filler(number: int) -> bytes:
    unit = _FILLERS[number]
    return gzip.compress(unit * ((8 << 20) // len(unit)), 9)


def gzip_bomb(chance: random.Random, data: bytes) -> bytes:
    """A good beginning, then up to 2 GB of the same; in members of 8 MB, which readers must join."""
    opening = re.search(rb'"traceEvents"\s*:\s*\[', data)
    cut = opening.end() if opening and chance.random() < 0.7 else chance.randrange(len(data))
    start = data[:cut] + chance.choice((b"", b"", b'{"ph": "X", "name": "', b'{"ts": ', b'{"args": {"Input Dims": '))
    return gzip.compress(start) + _filler(chance.randrange(len(_FILLERS))) * chance.choice((2, 32, 256))


def gzip_members(chance: random.Random, data: bytes) -> bytes:
    cut = chance.randrange(len(data) + 1)
    return gzip.compress(data[:cut], 1, mtime=0) + gzip.compress(data[cut:], 1, mtime=0)


def damage_gzip(chance: random.Random, data: bytes) -> bytes:
    packed = gzip.compress(data, chance.choice((1, 6)), mtime=0)
    kind = chance.randrange(5)
    if kind == 0:
        return packed[: len(packed) - chance.randrange(1, 10)]  # in the trailer
    if kind == 1:
        return packed[: chance.randrange(len(packed))]
    if kind == 2:
        return packed + chance.choice((b"\x00" * 512, b"garbage", b"\x1f\x8b", packed[:20], packed))
    return (flip_bits if kind == 3 else delete_bytes)(chance, packed)


# Cases.


class Case(NamedTuple):
    number: int
    base: str
    mutations: tuple[str, ...]
    name: str
    data: bytes


def make_case(number: int, seed: int = 0) -> Case:
    chance = random.Random(f"{seed}-{number}")
    base = chance.choice(("pretty", *bases()))
    data, done = bases()[base], []
    if is_pickle(base) or base in BINARY_MUTATIONS:
        name = plain_name(base)
        for mutation in chance.choices(BINARY_MUTATIONS.get(base, PICKLE_MUTATIONS), k=chance.choice((1, 1, 1, 2))):
            data = mutation(chance, data) if len(data) > 2 else data
            done.append(mutation.__name__)
    else:
        name = chance.choice(("rank0_trace.json", "rank0_trace.json", "trace.json"))
        heavy = chance.random() < 0.015
        weights, mutations = zip(*JSON_MUTATIONS, strict=True)
        chosen = (
            [chance.choice(HEAVY_MUTATIONS)]
            if heavy
            else chance.choices(mutations, weights, k=chance.choice((1, 1, 2, 3)))
        )
        for mutation in chosen:
            data = mutation(chance, data)
            done.append(mutation.__name__)
    wrap = chance.random()
    for limit, packing in ((0.004, gzip_bomb), (0.06, damage_gzip), (0.10, gzip_members)):
        if wrap < limit and data:
            return Case(number, base, (*done, packing.__name__), name + ".gz", packing(chance, data))
    if wrap < 0.3:
        return Case(number, base, (*done, "gzip"), name + ".gz", gzip.compress(data, 1, mtime=0))
    return Case(number, base, tuple(done), name, data)
