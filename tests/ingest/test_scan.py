"""A trace that is scanned gives the same rows as one that is decoded into objects."""

import gzip
import json
import os
import subprocess
import sys
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lostflops.ingest.common.columns import NULL
from lostflops.ingest.common.vocabulary import Vocabulary
from lostflops.ingest.formats.kineto import scan as kernel
from lostflops.ingest.formats.kineto import scanner as scanner_module
from lostflops.ingest.formats.kineto.rows import KinetoRows
from lostflops.ingest.formats.kineto.scan import ScanColumn
from lostflops.ingest.formats.kineto.scanned_rows import ScannedRows
from lostflops.ingest.formats.kineto.scanner import Scanner
from lostflops.ingest.formats.kineto.schema import DEVICE_KINDS, HOST_KINDS, Args, Event, decode_events
from lostflops.ingest.timeline.recording import Recording

reader = import_module("lostflops.ingest.formats.kineto.reader")

EVENT_KEYS = [field.encode_name for field in msgspec.structs.fields(Event) if field.name != "args"]
ARGS_KEYS = [field.encode_name for field in msgspec.structs.fields(Args)]
SPACE = st.sampled_from(["", " ", "\n    ", "\t\r\n"])

usual_texts = st.sampled_from(
    ["", "mm", "aten::add", "é", "a\\u00e9", '\\"', "\\\\", "\\/", "12", "ProfilerStep#3", "[memory]", "thread_name",
     "record_param_comms", "gloo:all_reduce", "x" * 70, "ncclKernel_AllReduce", "lostflops.module: a.b", "c10d::send",
     "dma_request", "-7", "007"]
).map(lambda text: f'"{text}"')  # fmt: skip
texts = st.one_of(usual_texts, st.sampled_from(['"\\ud83e\\udd80"', '"\\ud83e"', '"\\x"', '"\x01"', '"\x7f"']))
numbers = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.sampled_from(["0", "-0", "01", "1.", ".5", "1.5", "2e3", "1E-5", "75.0", "31.25", "0.1234567890123456", "-3.5"]),
    st.sampled_from([str(1 << 63), str(-(1 << 63)), "9" * 18, "9" * 19, "9" * 40, "1.7e308", "1e999", "-"]),
)
scalars = st.one_of(texts, numbers, st.sampled_from(["null", "true", "false", "nul", ""]))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]"),
        st.lists(st.tuples(texts, inner), max_size=2).map(
            lambda items: "{" + ",".join(f"{key}: {value}" for key, value in items) + "}"
        ),
    ),
    max_leaves=4,
)
usual_times = st.builds("{}.{:03d}".format, st.integers(0, 2 * 10**15), st.integers(0, 999))
times = st.one_of(
    usual_times,
    st.builds("{}.{}".format, st.integers(0, 10**7), st.text("0123456789", min_size=1, max_size=9)),
    st.integers(-(10**17), 10**17).map(str),
)
categories = st.sampled_from([*HOST_KINDS, *DEVICE_KINDS, "ac2g", "fwdbwd", "new", "cpu\\u005fop", ""])
whole = st.integers(0, 9).map(str)
usual = {
    "ph": st.sampled_from("XXXXXsfiMC").map(lambda phase: f'"{phase}"'),
    "cat": categories.map(lambda category: f'"{category}"'),
    "name": usual_texts,
    "ts": usual_times,
    "dur": usual_times,
    "pid": st.one_of(whole, st.just('"Traces"')),
    "tid": whole,
    "id": whole,
    "Input Dims": st.sampled_from(["[]", "[[2, 3], []]", "[[2,3]]"]),
    "Call stack": st.sampled_from(['""', '"torch/a.py(1): f;mine.py(2): g"', "[1]"]),
    "grid": st.sampled_from(["[1, 2, 3]", "[1, 2]"]),
    "bytes": st.sampled_from(["12", '"12"', '"-5"', '"x"', "null", '""']),
    "Collective name": st.sampled_from(['"allreduce"', "null"]),
}


@st.composite
def members(draw, keys, odd):
    """Return the text between the braces of an object, mostly as profilers write it."""
    parts = []
    for key in draw(st.lists(st.sampled_from([*keys, "Ev Idx", "Trace name"]), max_size=9, unique=not odd)):
        value = draw(values if odd and draw(st.booleans()) else usual.get(key, whole))
        parts.append(f'{draw(SPACE)}"{key}"{draw(SPACE)}:{draw(SPACE)}{value}{draw(SPACE)}')
    return parts


@st.composite
def pieces(draw, odd=True):
    found = []
    for _ in range(draw(st.integers(0, 5))):
        is_odd = odd and draw(st.booleans())
        parts = draw(members([*EVENT_KEYS, "ph", "cat", "name", "ts", "dur"], is_odd))
        if draw(st.booleans()):
            parts.append('"args": {' + ",".join(draw(members(ARGS_KEYS, is_odd))) + "}")
        parts += ['"ph": "X", "ts": 1.5, "dur": 2'] if draw(st.booleans()) else []
        found.append("{" + ",".join(parts) + "}")
    return ("[" + ",\n ".join(found) + "]").encode()


def content(recording):
    spools = (recording.host, recording.device, recording.memory)
    return repr(
        [
            [{name: column.tolist() for name, column in piece.items()} for spool in spools for piece in spool.pieces()],
            [recording.lanes, recording.steps, recording.comm_rows, recording.comm_calls, recording.transfer_calls],
            [[column.tolist() for column in batch] for batch in (*recording.annotations, *recording.modules)],
            {name: column.tolist() for name, column in recording.links.items()},
            [recording.span, recording.launches, dict(+recording.losses), recording.examples],
            [texts.texts() for texts in (recording.vocabulary.names, recording.vocabulary.details)],
            [texts.texts() for texts in (recording.vocabulary.grids, recording.vocabulary.sources)],
            recording.vocabulary.count_refused(),
        ]
    )


def by_objects(pieces):
    recording = Recording(vocabulary=Vocabulary())
    rows = KinetoRows(recording)
    for piece in pieces:
        rows.add(decode_events(piece))
    rows.finish()
    return content(recording)


def by_scans(pieces):
    """Return the content and the number of pieces that were scanned."""
    recording = Recording(vocabulary=Vocabulary())
    rows = KinetoRows(recording)
    scanned, count = ScannedRows(rows), 0
    for piece in pieces:
        found = scanned.scan(piece)
        if found is None:
            rows.add(decode_events(piece))
        else:
            scanned.add(found)
            count += 1
    rows.finish()
    return content(recording), count


def can_decode(piece):
    try:
        decode_events(piece)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


@settings(deadline=None, max_examples=300)
@given(st.lists(pieces(), min_size=1, max_size=3))
@example([b'[{"ph":"X","ts":1,"dur":1,"name":"\xff"}]'])
@example([b'[{"ph":"X","ts":1,"dur":1,"args":{"correlation":1},"args":{"External id":2}}]'])
@example([b'[{"ph":"X","ts":1,"dur":1,"ts":2,"args":{"correlation":1,"correlation":null}}]'])
@example([b'[{"ph":"X","ts":1,"dur":1,}]', b"[{},]", b"[", b"[{}", b"[{}] ", b"[1]", b"{}", b"[{}}"])
@example([b'[{"ph":"X","ts":1,"dur":1,"args":{"x":' + b"[" * 90 + b"]" * 90 + b"}}]"])
def test_a_scan_declines_or_means_the_same(found):
    scanner = Scanner()
    for piece in found:
        if not can_decode(piece):
            assert scanner.scan(piece) is None
    found = [piece for piece in found if can_decode(piece)]
    assert by_scans(found)[0] == by_objects(found)


@settings(deadline=None)
@given(times, st.sampled_from([",", " ,", "\n, "]))
@example("3999999999999999.9995", ",")
@example("4000000000000000", ",")
@example("1712195495519689.0475", ",")
@example("1712195495519689.0465", ",")
@example("0.00050000000000000000001", ",")
@example("0.0005", ",")
def test_times_are_exact_in_both_bases(text, after):
    found = Scanner().scan(b'[{"ts": %b%b"dur": 0}]' % (text.encode(), after.encode()))
    assert (found is None) == (abs(Fraction(text)) >= 4 * 10**15)
    assert found is None or found.rows[0, ScanColumn.START] == round(Fraction(text) * 1000)


@pytest.mark.parametrize("us", ["1712195495519689.047", "1712195495519689", "5726296389598.025", "0", "63.813", "-5.5"])
def test_usual_times_are_not_declined(us):
    found = Scanner().scan(f'[{{"ts": {us}, "dur": {us}}}]'.encode())
    assert found.rows[0, [ScanColumn.START, ScanColumn.DURATION]].tolist() == [round(Fraction(us) * 1000)] * 2


def test_a_missing_time_is_null():
    assert Scanner().scan(b'[{"ts": null}]').rows[0, [ScanColumn.START, ScanColumn.DURATION]].tolist() == [NULL, NULL]


@settings(deadline=None, max_examples=50)
@given(pieces(odd=False))
def test_a_piece_as_profilers_write_it_is_scanned(piece):
    assert Scanner().scan(piece) is not None


def test_tables_grow_and_are_given_up_when_they_are_too_large(monkeypatch):
    usual = {"ph": "X", "dur": 1, "cat": "cpu_op", "tid": 1}
    events = [{**usual, "ts": i, "name": f"op {i}", "pid": i} for i in range(9_000)]
    pieces = [json.dumps(events[at : at + 1000]).encode() for at in range(0, 9_000, 1000)]
    pieces.append(json.dumps([{**events[0], "name": "long " * 200_000}]).encode())
    if not kernel_is_compiled():
        pieces = pieces[:1]
    assert by_scans(pieces) == (by_objects(pieces), len(pieces))
    monkeypatch.setattr(scanner_module, "_MOST_BYTES", 1)
    expected, scanned = by_scans(pieces)
    assert (expected, scanned < len(pieces)) == (by_objects(pieces), kernel_is_compiled())


def kernel_is_compiled():
    return hasattr(kernel.scan_events, "py_func")


SAMPLE = [
    b'[{"ph": "X", "cat": "cpu_op", "name": "a\\u00e9b", "pid": "x", "tid": 7, "ts": 1712195495519689.0475, "dur": 3}]',
    b'[{"ph":"X","cat":"kernel","ts":5.25,"dur":1,"args":{"stream":7,"est. achieved occupancy %":31.25}}, {}]',
    b'[{"ph":"s","id":[{"a":[]},{}],"args":{"bytes":"12","grid":[1,2,3]}},{"name":1}]',
    b'[{"ph":"s","id":[{"a":[]},{}],"args":{"bytes":"-12","grid":[1,2,3],"Input Dims":[[1,2],[]]}}]',
]


def scan_sample():
    """Return what the sample's rows are."""
    scanner = Scanner()
    found = [scanner.scan(piece) for piece in SAMPLE]
    return [scan if scan is None else scan.rows.tolist() for scan in map(_copy, found)]


def _copy(scan):
    return scan and scan._replace(rows=scan.rows.copy())


@pytest.mark.skipif(not find_spec("numba"), reason="needs numba")
def test_plain_python_gives_the_same_rows_as_compiled_code():
    program = "import json; from tests.ingest.test_scan import scan_sample; print(json.dumps(scan_sample()))"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join([*sys.path, "."])}
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert json.loads(outcome.stdout) == json.loads(json.dumps(scan_sample()))


def test_reading_a_file_either_way_gives_the_same(tmp_path, monkeypatch):
    events = [
        {"ph": "X", "cat": category, "name": f"op{i % 7}", "pid": 1, "tid": i % 3, "ts": 1.7e15 + i, "dur": i % 5,
         "args": {"correlation": i, "External id": i, "stream": i % 2, "device": 0}}
        for i in range(300) for category in ("cpu_op", "cuda_runtime", "kernel")
    ]  # fmt: skip
    path = tmp_path / "trace.json.gz"
    text = json.dumps({"traceEvents": events, "after": 1}).replace('"op3"', "nan", 1)
    path.write_bytes(gzip.compress(text.encode()))
    found = []
    for worth in (0, 1 << 60):
        monkeypatch.setattr(reader, "WORTH_LOADING", worth)
        monkeypatch.setattr(reader, "WORTH_COMPILING", 0)
        monkeypatch.setattr(reader, "find_spec", lambda _, worth=worth: None if worth else True)
        recording, digest = reader.read_trace(path, Vocabulary())
        found.append((content(recording), digest, recording.document))
        recording.close()
    assert found[0] == found[1]
