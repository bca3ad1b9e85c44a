"""Any JSON document with one huge array, cut anywhere, is read as `json.loads` reads it."""

import json
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lostflops.core.errors import BrokenSource
from lostflops.ingest.formats.kineto import json_array
from lostflops.ingest.formats.kineto.json_array import JsonArray, element_spans

KEY = "traceEvents"
decode = msgspec.json.Decoder(list[dict]).decode

hard_texts = st.sampled_from(
    ["", "}, {", '"', '\\"', "\\", "\\\\", "[", "]", "{", "}", '"}, {"', "],", '{"traceEvents": [', "é", "\n",
     "nan", ": nan,", "🦀", "\u2028"]
)  # fmt: skip
texts = st.one_of(
    hard_texts,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.builds("".join, st.lists(hard_texts, max_size=4)),
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**15), 10**15), st.floats(allow_nan=False, allow_infinity=False), texts
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
events = st.lists(st.dictionaries(texts, values, max_size=4), max_size=8)
keys = texts.filter(lambda key: key not in (KEY, "_"))
decoys = st.builds(lambda inner: {KEY: inner, "after": [{}, {}]}, st.one_of(events, st.just(5)))
members = st.dictionaries(keys, st.one_of(values, decoys), max_size=3)
styles = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"indent": 2},
        {"indent": 1, "ensure_ascii": False},
        {"separators": (" ,\n\t ", "\r\n: ")},
        {"separators": (",\n  ", ": "), "ensure_ascii": False},
    ]
)
SIZES = st.integers(1, 200)


def blocks(text, size):
    return (text[at : at + size] for at in range(0, len(text), size))


def read(text, size=1 << 20):
    """All elements, the other members, what was lost."""
    reader = JsonArray(blocks(text, size), KEY, decode)
    found = [element for batch in reader for element in batch]
    return found, reader.document, +reader.losses


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(members, events, members, styles, SIZES)
@example({}, [{"a": "}, {"}], {}, {"indent": 2}, 1)
@example({"x": {KEY: [{}, {}]}}, [{}, {}], {"y": [{"b": 1}, {"c": 2}]}, {"separators": (",", ":")}, 7)
@example({}, [], {}, {"indent": 2}, 3)
def test_reads_what_json_reads(before, array, after, style, size):
    document = before | {KEY: array} | {key: value for key, value in after.items() if key not in before}
    text = json.dumps(document, **style).encode()
    expected = json.loads(text)
    assert expected.pop(KEY) == array
    assert read(text, size) == (array, expected, Counter())


@given(events, styles, SIZES, st.sampled_from(["", " \n", "\t"]))
def test_a_bare_array_is_read_too(array, style, size, space):
    text = (space + json.dumps(array, **style) + space).encode()
    assert read(text, size) == (array, {}, Counter())


SAMPLE = {
    "schemaVersion": 1,
    "distributedInfo": {"rank": 3, KEY: [{"decoy": 1}, {"decoy": 2}]},
    KEY: [
        {"name": "a", "args": {"shapes": [[1], []], "list": [{"x": 1}, {"y": 2}]}},
        {"name": "}, {", "args": {}},
        {"name": 'q"\\', "ts": 1.5},
        {},
        {"name": "é🦀"},
    ],
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    "traceName": "], {",
}


@pytest.mark.parametrize("style", [{"separators": (",", ":")}, {"indent": 2}, {"ensure_ascii": False}])
@pytest.mark.parametrize("size", [5, 1 << 20])
def test_a_file_cut_at_any_byte_gives_a_prefix(style, size):
    document = SAMPLE | {"distributedInfo": {"rank": 3, "traceEvents": 5}}
    text = json.dumps(document, **style).encode()
    # Where the inside of the array begins and ends; behind every element one more can be read.
    begin = text.index(b"[", text.rindex(b'"' + KEY.encode() + b'"')) + 1
    ends = [begin + end for _, end in element_spans(text[begin:])[0]]
    array_end = begin + element_spans(text[begin:])[1]
    for cut in range(0, len(text), 1 if size > 5 else 23):
        if cut < begin:
            with pytest.raises(BrokenSource):
                read(text[:cut], size)
            continue
        found, header, losses = read(text[:cut], size)
        assert found == SAMPLE[KEY][: sum(end <= cut for end in ends)]
        assert header["distributedInfo"] == document["distributedInfo"]
        assert losses, f"nothing was said about the end that is missing behind {text[:cut][-20:]!r}"
        assert bool(losses["truncated"]) == (cut <= array_end)


@pytest.mark.parametrize(
    "bad",
    ['{"a": tru}', '{"a" 1}', '{"a": 01}', '{a: 1}', '{"a": 1,}', '{"a": "\\x"}', "[1, 2]",
     '{"a": "\\ud800"}', "[[]]", '{"a": \x01}'],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 9, 1 << 20])
def test_a_bad_element_is_counted_and_the_rest_is_kept(bad, size):
    text = f'{{"x": 1, "{KEY}": [{{"n": 1}}, {{"n": 2}}, {bad}, {{"n": 3}}, {{"n": 4}}], "y": 2}}'.encode()
    found, document, losses = read(text, size)
    assert found == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
    assert document == {"x": 1, "y": 2}
    assert losses == {"unreadable_events": 1}


@pytest.mark.parametrize("bad", ["5", "null", '"text"', "-1.5e3"])
@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_scalar_among_the_elements_is_counted_and_the_rest_is_kept(bad, where):
    elements = ['{"n": 1}', '{"n": 2}']
    elements.insert({"first": 0, "middle": 1, "last": 2}[where], bad)
    found, document, losses = read(f'{{"{KEY}": [{", ".join(elements)}], "y": 2}}'.encode())
    assert (found, document) == ([{"n": 1}, {"n": 2}], {"y": 2})
    assert losses == {"unreadable_events": 1}


@pytest.mark.parametrize("size", [1, 9, 1 << 20])
def test_one_brace_too_many_does_not_pass_for_the_end_of_the_array(size):
    text = f'{{"{KEY}": [{{"n": 1}}, {{"n": 2}}}}, {{"n": 3}}, {{"n": 4}}], "y": 2}}'.encode()
    found, _, losses = read(text, size)
    assert found[:2] == [{"n": 1}, {"n": 2}]
    assert len(found) == 4 or losses["truncated"], "two events are gone, and nothing says that events are missing"


@pytest.mark.parametrize("word", ["nan", "NaN", "-nan", "inf", "-inf", "Infinity", "-Infinity", "INF"])
@pytest.mark.parametrize("size", [1, 9, 1 << 20])
def test_bare_words_of_c_become_null(word, size):
    text = f'{{"{KEY}": [{{"n": 1}}, {{"a": {word}, "b": [{word},{word} , 1], "c":{word}}}, {{"n": 3}}]}}'.encode()
    found, _, losses = read(text, size)
    assert found == [{"n": 1}, {"a": None, "b": [None, None, 1], "c": None}, {"n": 3}]
    assert losses == {"repaired_events": 1}


def test_texts_of_a_repaired_element_stay_as_they_were():
    name = "loss is nan, see: inf ] and [nan]"
    text = json.dumps({KEY: [{"name": name, "a": 0}]}).replace(" 0}", " nan}").encode()
    assert read(text)[0] == [{"name": name, "a": None}]


def test_text_that_is_not_utf8_is_repaired():
    text = f'{{"{KEY}": [{{"n": 1}}, {{"name": "a\xff"}}, {{"n": 3}}]}}'.encode("latin-1")
    found, _, losses = read(text)
    assert found == [{"n": 1}, {"name": "a\ufffd"}, {"n": 3}]
    assert losses == {"repaired_events": 1}


def test_a_header_that_cannot_be_read_is_counted_and_the_events_are_kept():
    found, document, losses = read(f'{{"memory": nan, "{KEY}": [{{"n": 1}}], "y": 2}}'.encode())
    assert (found, document) == ([{"n": 1}], {"y": 2})
    assert losses == {"unreadable_header": 1}


def test_a_trailer_that_cannot_be_read_is_counted_and_the_events_are_kept():
    found, document, losses = read(f'{{"x": 1, "{KEY}": [{{"n": 1}}], "y": nan}}'.encode())
    assert (found, document) == ([{"n": 1}], {"x": 1})
    assert losses == {"unreadable_header": 1}


@pytest.mark.parametrize("count", [1, 7])
def test_several_decoys(count):
    header = {f"d{i}": {KEY: [{"decoy": i}]} for i in range(count)}
    assert read(json.dumps(header | {KEY: [{"n": 1}]}).encode()) == ([{"n": 1}], header, Counter())


def test_a_member_called_underscore_is_kept():
    document = {"_": 1, KEY: [{}], "x": 2}
    assert read(json.dumps(document).encode()) == ([{}], {"_": 1, "x": 2}, Counter())


@pytest.mark.parametrize(
    "text", [b"", b" ", b"{}", b"5", b"null", b'{"traceEvents": 5}', b'{"traceEvents"', b"\xff\xfe", b"\0"]
)
def test_no_array_is_a_broken_source(text):
    with pytest.raises(BrokenSource, match=KEY):
        read(text)


def test_an_element_that_does_not_end_is_given_up(monkeypatch):
    monkeypatch.setattr(json_array, "LARGEST_ELEMENT", 1000)
    text = f'{{"{KEY}": [{{"n": 1}}, {{"a": "'.encode() + b"x" * 5000 + b'"}, {"n": 3}]}'
    found, _, losses = read(text, 100)
    assert found == [{"n": 1}]
    assert losses["truncated"] == 1
    assert losses["bytes_unread"] == len(text) - text.index(b'{"a"')


def test_a_header_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(json_array, "LARGEST_HEADER", 1000)
    with pytest.raises(BrokenSource):
        read(b'{"a": "' + b"x" * 5000 + f'", "{KEY}": []}}'.encode(), 100)


def test_a_trailer_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(json_array, "LARGEST_HEADER", 1000)
    monkeypatch.setattr(json_array, "LARGEST_ELEMENT", 1000)
    found, _, losses = read(f'{{"{KEY}": [{{"n": 1}}], "a": "'.encode() + b"x" * 5000 + b'"}', 100)
    assert found == [{"n": 1}]
    assert losses["truncated"] == 1


def test_bytes_that_could_not_be_read_are_counted():
    assert read(f'{{"{KEY}": [{{"n": 1}}, {{"n": '.encode())[2] == {"truncated": 1, "bytes_unread": 6}


@pytest.mark.parametrize("depth", [500, 2_000, 200_000])
def test_deep_nesting_is_one_bad_element(depth):
    deep = "[" * depth + "]" * depth
    found, _, losses = read(f'{{"{KEY}": [{{"n": 1}}, {{"a": {deep}}}, {{"n": 3}}]}}'.encode(), 4096)
    assert {"n": 1} in found
    assert {"n": 3} in found
    assert len(found) + losses["unreadable_events"] == 3


@settings(max_examples=150)
@given(st.data(), st.sampled_from([1, 7, 50, 1 << 20]))
def test_any_damage_ends_in_elements_or_a_broken_source(data, size):
    text = bytearray(json.dumps(SAMPLE, indent=data.draw(st.sampled_from([None, 1]))).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 4))] = data.draw(
            st.sampled_from(
                [b"", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"nan", b"\xff", b"\0", b"}, {", b"9" * 400]
            )
        )
    try:
        found, _, _ = read(bytes(text), size)
    except BrokenSource:
        return
    assert all(isinstance(element, dict) for element in found)


PIECES = [b"{", b"}", b"[", b"]", b",", b" ", b"1", b'"a"', b'"}"', b'"[{"', b'"\\\\"', b'"\\""', b'"\\\\\\"]"']


@given(st.lists(st.sampled_from(PIECES), max_size=30), st.sampled_from([b"", b'"', b'"}', b'"\\', b'"\\"}']))
def test_element_spans_scans_as_a_naive_scanner_does(pieces, rest):
    text = b"".join(pieces) + rest
    ends, depth, inside, escaped, array_end = [], 0, False, False, None
    for at, char in enumerate(text.decode()):
        if escaped or (inside and char == "\\"):
            escaped = not escaped
        elif char == '"':
            inside = not inside
        elif not inside and char in "{[":
            depth += 1
        elif not inside and char in "}]":
            depth -= 1
            if depth < 0:
                array_end = at
                break
            if depth == 0:
                ends.append(at + 1)
    spans, end = element_spans(text)
    assert ([stop for _, stop in spans], end) == (ends, array_end)
