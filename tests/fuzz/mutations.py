"""Ways to damage inputs that know their structure: they get behind checksums and containers."""

from __future__ import annotations

import copy
import functools
import gzip
import io
import pickle
import random
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb

from lostflops.collect import capture
from lostflops.ingest.common import safe_pickle
from lostflops.store.seals import UNSEALED, seal
from tests.fuzz import seeds
from tests.fuzz.exports import EXPORT_MUTATIONS

# JSON, and other text.

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
_LARGE = 1 << 20
"""Bytes that are not damaged again: lists of their values would take gigabytes."""


def replace_value(chance: random.Random, data: bytes, values: list[bytes]) -> bytes:
    spots = list(_VALUE.finditer(data))
    if not spots:
        return data
    spot = chance.choice(spots)
    if chance.random() < 0.15:  # wherever that key is
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
    document = copy.deepcopy(seeds.DUMP)
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


# Mutators of targets: each returns an input of its own kind.


def json_text(chance: random.Random, data: bytes) -> bytes:
    """Damage a JSON text, also inside of gzip."""
    if data[:2] == b"\x1f\x8b":
        return inside_gzip(chance, data, json_text)
    weights, mutations = zip(*JSON_MUTATIONS, strict=True)
    for mutation in chance.choices(mutations, weights, k=chance.choice((1, 1, 2, 3))):
        data = mutation(chance, data)
        if len(data) > _LARGE:
            break
    return gzip.compress(data, 1, mtime=0) if chance.random() < 0.02 else data


def inside_gzip(chance: random.Random, data: bytes, mutation: Mutation) -> bytes:
    if chance.random() < 0.2:
        return chance.choice((flip_bits, delete_bytes, insert_bytes))(chance, data)
    try:
        inner = zlib.decompressobj(31).decompress(data, 1 << 20)
    except zlib.error:
        return data
    return chance.choice((gzip_members, damage_gzip, _packed, _packed, _packed))(chance, mutation(chance, inner))


def _packed(_chance: random.Random, data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def pickled(chance: random.Random, data: bytes) -> bytes:
    if data[:2] == b"\x1f\x8b":
        return inside_gzip(chance, data, pickled)
    if data[:1] != b"\x80":
        return json_text(chance, data)
    if chance.random() < 0.5:
        return with_other_value(chance, data)
    mutation = chance.choice((truncate, flip_bits, insert_bytes, delete_bytes, splice_opcodes))
    return mutation(chance, data) if len(data) > 2 else data


_ODD_VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 70, -(1 << 63), 1.5, 1e300,
    float("nan"), float("inf"), b"\xff", "", "x", "\x00", "x" * 5000, [], {}, (), [[]], {"a": 1}, [None], [-1], {1: 2},
    "[0, 1", [[1, "a"]], "completed", "scheduled", set(), ("0", "x"), "0", 3, 2147483647,
)  # fmt: skip


def with_other_value(chance: random.Random, data: bytes) -> bytes:
    """Replace, remove or repeat one value anywhere in a pickle of plain values."""
    try:
        document = safe_pickle.loads(data, "")
        places = list(islice(_places(document), 5_000))
        holder, key = chance.choice(places)
        act = chance.randrange(8)
        if act == 0:
            del holder[key]
        elif act == 1 and isinstance(holder, list):
            holder += holder[key : key + 1] * chance.choice((1, 3, 50))
        elif act == 2:
            other, place = chance.choice(places)
            holder[key] = other[place]
        else:
            holder[key] = chance.choice(_ODD_VALUES)
        return pickle.dumps(document, chance.choice((2, 4, 5)))
    except Exception:  # noqa: BLE001 - a damaged pickle may hold and raise anything
        return splice_opcodes(chance, data) if len(data) > 2 else data


def _places(value: Any, depth: int = 0) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        if depth < 8:
            yield from _places(inner, depth + 1)


def capture_frames(chance: random.Random, data: bytes) -> bytes:
    """Damage the payload of a frame and repair its checksum, or move frames; sometimes damage the framing itself."""
    if data[:2] == b"\x1f\x8b":
        return inside_gzip(chance, data, capture_frames)
    if chance.random() < 0.15:
        return chance.choice((flip_bits, delete_bytes, insert_bytes, truncate))(chance, data)
    frames = _frames(data)
    if not frames:
        return flip_bits(chance, data)
    place = chance.randrange(len(frames))
    rank, payload = frames[place]
    act = chance.randrange(10)
    if act == 0:
        frames.insert(chance.randrange(len(frames)), frames[place])
    elif act == 1:
        del frames[place]
    elif act == 2:
        frames[place] = chance.choice((0, 1, 2, 7, 999_999, 1_000_000, 1 << 31, (1 << 32) - 1)), payload
    else:
        weights, mutations = zip(*JSON_MUTATIONS, strict=True)
        for mutation in chance.choices(mutations, weights, k=chance.choice((1, 1, 2))):
            payload = mutation(chance, payload)
        frames[place] = rank, payload
    return b"".join(_frame(rank, payload) for rank, payload in frames)


def _frames(data: bytes) -> list[tuple[int, bytes]]:
    found, place = [], 0
    while (place := data.find(capture._MAGIC, place)) >= 0 and len(data) >= place + capture._HEADER.size:
        _, rank, length, _ = capture._HEADER.unpack_from(data, place)
        start = place + capture._HEADER.size
        found.append((rank, data[start : start + length]))
        place = start + min(length, len(data))
    return found


def _frame(rank: int, payload: bytes) -> bytes:
    return capture._HEADER.pack(capture._MAGIC, rank, len(payload), capture._checksum(rank, payload)) + payload


def database(chance: random.Random, data: bytes) -> bytes:
    mutations = (*EXPORT_MUTATIONS, *EXPORT_MUTATIONS, truncate, flip_bits, insert_bytes, delete_bytes)
    return chance.choice(mutations)(chance, data)


def sealed(chance: random.Random, data: bytes) -> bytes:
    """Damage a JSON document and, mostly, repair its seal."""
    data = json_text(chance, data)
    found = re.search(rb'"seal": ?"([^"]{8})"\s*\}\s*\Z', data)
    if found is None or chance.random() < 0.1:
        return data
    return seal(data[: found.start(1)] + UNSEALED.encode() + data[found.end(1) :])


def parquet(chance: random.Random, data: bytes) -> bytes:
    """Change bytes, more often those of the footer, where the schema and all sizes are."""
    changed = bytearray(data)
    footer = min(len(data), int.from_bytes(data[-8:-4], "little") + 8) if len(data) > 12 else len(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        inside = chance.randrange(footer) if footer and chance.random() < 0.6 else chance.randrange(len(data) or 1)
        if changed:
            place = max(0, len(changed) - 1 - inside)
            changed[place] = chance.choice(
                (0, 1, 2, 21, 24, 25, 127, 128, 255, changed[place] ^ 1 << chance.randrange(8))
            )
    return (
        bytes(changed) if chance.random() < 0.9 else chance.choice((truncate, delete_bytes, insert_bytes))(chance, data)
    )


def parquet_rows(chance: random.Random, data: bytes) -> bytes:
    """Change values, types or columns of a Parquet file by SQL, or its bytes."""
    if chance.random() < 0.4:
        return parquet(chance, data)
    with tempfile.TemporaryDirectory(prefix="lostflops-fuzz-") as folder:
        path, made = Path(folder, "a"), Path(folder, "b")
        path.write_bytes(data)
        try:
            names = _database.execute(f"describe select * from read_parquet('{path}')").fetchall()
            column, kind = chance.choice(names)[:2]
            value = chance.choice(_CELLS)
            kind = chance.choice(
                (kind, kind, "DOUBLE", "VARCHAR", "BIGINT", "BLOB", "INTEGER[]", "TIMESTAMP", "UHUGEINT")
            )
            rows = chance.choice(("true", "row % 2 = 0", "row = 3", "row > 5"))
            new = f"try_cast(case when {rows} then {value} else {column}::varchar end as {kind})"
            what = chance.choice(
                (f"* exclude (row) replace ({new} as {column})",) * 5 + (f"* exclude (row, {column})",)
            )
            more = chance.choice(("", "", "", "limit 0", "limit 7", f"order by {column}"))
            source = f"(select *, row_number() over () as row from read_parquet('{path}'))"
            _database.execute(f"copy (select {what} from {source} {more}) to '{made}' (format parquet)")
        except (duckdb.Error, RuntimeError, UnicodeDecodeError, IndexError):
            return parquet(chance, data)
        return made.read_bytes()


_database = duckdb.connect(config={"threads": 1})
_CELLS = (
    "null", "'-1'", "'0'", "'1'", "'2'", "'127'", "'99999'", "'1000000'", "'2147483647'", "'1e300'", "'nan'", "'inf'",
    "'-1e9'", "'99999.5'", "''", "'forward-compute'", "'backward-compute'", "'optimizer'", "'forward-send'",
    "'x-all-reduce'", "repeat('x', 3000)", "row::varchar", "(row % 3)::varchar", "(row * 1000)::varchar",
)  # fmt: skip


def log_lines(chance: random.Random, data: bytes) -> bytes:
    """Change words and lines of a log."""
    if data[:2] == b"\x1f\x8b":
        return inside_gzip(chance, data, log_lines)
    lines = data.split(b"\n")
    place = chance.randrange(len(lines))
    act = chance.randrange(6)
    if act == 0:
        return chance.choice((flip_bits, delete_bytes, insert_bytes, truncate))(chance, data)
    if act == 1:
        lines.insert(place, chance.choice(lines))
    elif act == 2:
        del lines[place]
    else:
        words = lines[place].split(b" ")
        odd = (
            *_NUMBERS,
            *_NOT_NUMBERS,
            b"N/A",
            b"none",
            b"sum",
            b"half",
            b"-1",
            b"\xc2\xb2",
            b"\xd9\xa3",
            b"Group",
            b"",
        )
        words[chance.randrange(len(words))] = chance.choice(odd)
        lines[place] = b" ".join(words)
    return b"\n".join(lines)


def archive(chance: random.Random, data: bytes) -> bytes:
    """Damage a member of a ZIP and pack it again with its checksum, or damage the ZIP itself."""
    if chance.random() < 0.2:
        return chance.choice((flip_bits, delete_bytes, insert_bytes, truncate))(chance, data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            members = [(info.filename, opened.read(info)) for info in opened.infolist()]
        place = chance.randrange(len(members))
    except Exception:  # noqa: BLE001 - a damaged ZIP may raise anything
        return flip_bits(chance, data)
    place = 0 if chance.random() < 0.3 else place
    name, content = members[place]
    act = chance.randrange(12)
    if act == 0:
        del members[place]
    elif act == 1:
        members.insert(chance.randrange(len(members) + 1), chance.choice(members))
    elif act == 2:
        other = chance.choice(("events", "steps", "links", "lanes", "memory", "stats", "ranks", "../x", "groups"))
        members[place] = f"{other}/{chance.choice((0, 3, 77))}.parquet", content
    else:
        members[place] = name, json_text(chance, content) if content[:1] == b"{" else parquet(chance, content)
    packed = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if chance.random() < 0.02 else zipfile.ZIP_STORED
    with zipfile.ZipFile(packed, "w", method) as made:
        for name, content in members:
            made.writestr(zipfile.ZipInfo(name), content, method)
    return packed.getvalue()


_TOKENS = re.compile(rb"\w+|'[^']*'|[^\w\s]")
_SQL = (
    b"select from where with recursive as union all intersect values table describe show summarize explain "
    b"analyze pivot unpivot copy insert update delete attach install load pragma set call export create drop "
    b"into limit order by group having window over partition lateral join using on case when then end cast "
    b"null true distinct exists any not in like events steps ranks stats lanes memory main temp system "
    b"information_schema duckdb_settings() duckdb_views() read_csv('/etc/passwd') read_text('x') "
    b"read_parquet('x') glob('*') getenv('HOME') current_setting('threads') query('select 1') "
    b"query_table(['events']) json_serialize_plan('select 1') pg_get_viewdef(1) pragma_table_info('events') "
    b"json_execute_serialized_sql('x') sniff_csv('x') unnest([1]) generate_series(1,3) range(3) repeat(1,2) "
    b"columns(*) * ( ) , . ; -- /* */ ' \" $1 :: -> ->> [ ] { } || = <> 1 0.5 1e400 'x' x'00' E'\\x00' "
    b"\x00 "
).split()


def sql(chance: random.Random, data: bytes) -> bytes:
    """Move, repeat, remove or replace words of a query."""
    words = _TOKENS.findall(data) or [b"select"]
    for _ in range(chance.choice((1, 2, 4))):
        place = chance.randrange(len(words) or 1)
        act = chance.randrange(5)
        if act == 0 and words:
            del words[place]
        elif act == 1:
            words[place:place] = words[chance.randrange(len(words) or 1) :][: chance.randrange(8)]
        elif act == 2:
            words[place:place] = chance.choice(_WHOLE_QUERIES)
        else:
            words[place:place] = [chance.choice(_SQL)]
    return b" ".join(words)


_WHOLE_QUERIES = [[b"(", *_TOKENS.findall(query), b")"] for query in seeds.queries()]


def any_file(chance: random.Random, data: bytes) -> bytes:
    """Damage a file by the format that its first bytes show."""
    if data[:2] == b"\x1f\x8b":
        return inside_gzip(chance, data, any_file)
    for magic, mutation in _BY_MAGIC:
        if data.startswith(magic):
            return mutation(chance, data)
    return json_text(chance, data)


_BY_MAGIC: Sequence[tuple[bytes, Mutation]] = (
    (b"\x80", pickled),
    (capture._MAGIC, capture_frames),
    (b"SQLite format 3\0", database),
    (b"PK", archive),
    (b"PAR1", parquet),
)
