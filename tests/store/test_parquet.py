"""Columns to Parquet and back: every type, every way to say null."""

import math
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostflops.store.parquet import ConstantColumn, ParquetWriter, TextColumn
from lostflops.store.tables import Column, TableSchema

I32, I64 = np.iinfo(np.int32), np.iinfo(np.int64)
TABLE = TableSchema(
    "things",
    "One column of each type that a table declares.",
    (
        Column("rank", "INTEGER", ""),
        Column("big", "BIGINT", ""),
        Column("share", "DOUBLE", ""),
        Column("text", "VARCHAR", ""),
        Column("flag", "BOOLEAN", ""),
    ),
)
NASTY = [
    "",
    "'",
    '"',
    "''; DROP TABLE x; --",
    "a\nb\tc",
    "\\",
    "a\0b",
    "\0",
    "é",
    "名前",
    "🦀",
    "{}",
    "NULL",
    "nan",
    "%s",
]


@pytest.fixture(scope="module")
def writer():
    writer = ParquetWriter()
    yield writer
    writer.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("parquet")


def round_trip(writer, path, **columns):
    writer.write(TABLE, columns, path)
    back = writer.read(path)
    assert list(back) == list(TABLE.column_names()), "every declared column, in order"
    return {name: back[name] for name in columns}


def stored_types(path):
    rows = duckdb.sql(f"describe select * from read_parquet('{path}')").fetchall()
    return {row[0]: row[1] for row in rows}


def test_every_kind_of_column_on_one_screen(writer, tmp_path):
    found = round_trip(
        writer,
        tmp_path / "deep" / "er" / "a.parquet",
        rank=np.array([0, I32.min, I32.max, I32.min + 1], np.int32),
        big=np.array([I64.max, I64.min, -1, I64.min + 1]),
        share=np.array([0.1, math.nan, math.inf, -0.0]),
        text=TextColumn(np.array([2, 0, 1, 2], np.uint32), [None, "one", "two"]),
        flag=[True, None, False, True],
    )
    assert found == {
        "rank": [0, None, I32.max, I32.min + 1],
        "big": [I64.max, None, -1, I64.min + 1],
        "share": [0.1, None, math.inf, -0.0],
        "text": ["two", None, "one", "two"],
        "flag": [True, None, False, True],
    }
    assert stored_types(tmp_path / "deep" / "er" / "a.parquet") == {c.name: c.type for c in TABLE.columns}


def test_columns_that_are_not_given_are_null_of_the_declared_type(writer, tmp_path):
    writer.write(TABLE, {"big": np.array([7])}, tmp_path / "a.parquet")
    assert writer.read(tmp_path / "a.parquet") == {
        "rank": [None],
        "big": [7],
        "share": [None],
        "text": [None],
        "flag": [None],
    }
    assert stored_types(tmp_path / "a.parquet") == {c.name: c.type for c in TABLE.columns}


def test_a_column_that_no_table_has_is_a_bug(writer, tmp_path):
    with pytest.raises(AssertionError, match="colour"):
        writer.write(TABLE, {"colour": [1]}, tmp_path / "a.parquet")


@pytest.mark.parametrize("value", [v for v in NASTY if "\0" not in v])
def test_constants_of_text(writer, tmp_path, value):
    found = round_trip(writer, tmp_path / "a.parquet", big=np.arange(3), text=ConstantColumn(value))
    assert found["text"] == [value] * 3


@pytest.mark.parametrize("value", [0, -1, I64.max, I64.min, None])
def test_constants_of_numbers(writer, tmp_path, value):
    assert (
        round_trip(writer, tmp_path / "a.parquet", big=ConstantColumn(value), share=np.zeros(2))["big"] == [value] * 2
    )


@pytest.mark.parametrize("value", NASTY)
def test_texts_that_would_break_careless_code(writer, tmp_path, value):
    coded = TextColumn(np.array([1, 0, 1], np.uint32), [None, value])
    assert round_trip(writer, tmp_path / "a.parquet", text=coded)["text"] == [value, None, value]
    assert round_trip(writer, tmp_path / "b.parquet", text=[value, None, value])["text"] == [value, None, value]


def test_no_rows(writer, tmp_path):
    nothing = round_trip(
        writer,
        tmp_path / "a.parquet",
        big=np.empty(0, np.int64),
        text=TextColumn(np.empty(0, np.uint32), [None]),
        flag=[],
    )
    assert nothing == {"big": [], "text": [], "flag": []}


def test_text_columns_that_share_their_values(writer, tmp_path):
    table = TableSchema("t", "", (Column("a", "VARCHAR", ""), Column("b", "VARCHAR", ""), Column("c", "VARCHAR", "")))
    shared, other = [None, "x", "y"], [None, "z"]
    columns = {
        "a": TextColumn(np.array([1, 2], np.uint32), shared),
        "b": TextColumn(np.array([2, 0], np.uint32), shared),
        "c": TextColumn(np.array([1, 1], np.uint32), other),
    }
    writer.write(table, columns, tmp_path / "a.parquet")
    assert writer.read(tmp_path / "a.parquet") == {"a": ["x", "y"], "b": ["y", None], "c": ["z", "z"]}


def test_texts_of_one_write_do_not_reach_the_next(writer, tmp_path):
    for number in range(20):
        values = [None, f"text {number}"]
        found = round_trip(writer, tmp_path / "a.parquet", text=TextColumn(np.array([1], np.uint32), values))
        assert found["text"] == [f"text {number}"]


@pytest.mark.parametrize("seldom", [(3_999, 5), (3_999, 1 << 40), (2_500, -7), (0, 1)])
def test_lists_whose_values_are_few_and_far_between(writer, tmp_path, seldom):
    """DuckDB guesses the type of Python objects from a sample of the rows."""
    row, value = seldom
    values = [None] * 4_000
    values[row] = value
    assert round_trip(writer, tmp_path / "a.parquet", big=values)["big"] == values
    texts = [None if v is None else f"text {v}" for v in values]
    assert round_trip(writer, tmp_path / "b.parquet", text=texts)["text"] == texts


def test_lists_of_small_numbers_with_a_large_one(writer, tmp_path):
    values = [1] * 3_777 + [I64.max] + [None] * 500 + [I64.min]
    assert round_trip(writer, tmp_path / "a.parquet", big=values)["big"] == values


int64s = st.one_of(st.none(), st.integers(I64.min + 1, I64.max))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(int64s, st.one_of(st.none(), st.floats(allow_nan=False)), texts), max_size=12))
def test_any_rows_come_back_as_they_were(writer, folder, rows):
    values = [None, *dict.fromkeys(text for _, _, text in rows if text)]
    found = round_trip(
        writer,
        folder / "any.parquet",
        big=np.array([I64.min if big is None else big for big, _, _ in rows], np.int64),
        share=np.array([math.nan if share is None else share for _, share, _ in rows], np.float64),
        text=TextColumn(np.array([values.index(text or None) for _, _, text in rows], np.uint32), values),
    )
    assert found["big"] == [big for big, _, _ in rows]
    assert found["share"] == [share for _, share, _ in rows]
    assert found["text"] == [text or None for _, _, text in rows]
    listed = round_trip(writer, folder / "any.parquet", big=[r[0] for r in rows], text=[r[2] for r in rows])
    assert listed == {"big": [r[0] for r in rows], "text": [r[2] for r in rows]}


def three_parts(writer, folder):
    for name, ranks in (("b", [3, 1]), ("a", [2]), ("c", [1, 1, 9])):
        columns = {"rank": np.array(ranks, np.int32), "text": [f"{name}{i}" for i in range(len(ranks))]}
        writer.write(TABLE, columns, folder / f"{name}.parquet")
    return [folder / f"{name}.parquet" for name in "bac"]


def test_merge_keeps_all_rows_in_their_order(writer, tmp_path):
    writer.merge(three_parts(writer, tmp_path), tmp_path / "x" / "all.parquet")
    merged = writer.read(tmp_path / "x" / "all.parquet")
    assert merged["text"] == ["b0", "b1", "a0", "c0", "c1", "c2"]
    assert merged["rank"] == [3, 1, 2, 1, 1, 9]
    assert stored_types(tmp_path / "x" / "all.parquet") == {c.name: c.type for c in TABLE.columns}


def test_merge_and_read_take_only_the_rows_that_are_asked_for(writer, tmp_path):
    parts = three_parts(writer, tmp_path)
    writer.merge(parts, tmp_path / "some.parquet", where="rank IN (1, 9)")
    assert writer.read(tmp_path / "some.parquet")["text"] == ["b1", "c0", "c1", "c2"]
    assert writer.read(tmp_path / "some.parquet", "rank = 9")["text"] == ["c2"]
    assert writer.read(tmp_path / "some.parquet", "rank = 5")["text"] == []


def test_smallest(writer, tmp_path):
    parts = three_parts(writer, tmp_path)
    assert writer.smallest(parts, "rank", "true", first_if="text = 'a0'") == 2
    assert writer.smallest(parts, "rank", "true", first_if="text = 'no such'") == 1
    assert writer.smallest(parts, "rank", "rank > 2", first_if="false") == 3
    assert writer.smallest(parts, "rank", "rank > 99", first_if="true") == 0
    assert writer.smallest([], "rank", "true", first_if="true") == 0


@pytest.mark.parametrize("name", ["it's", 'a "b"', "a b", "[1]", "x*", "{a}", "ü", "a?b", "100%", "a;b"])
def test_folders_with_odd_names(writer, tmp_path, name):
    """A folder is a name, never a pattern."""
    path = Path(tmp_path, name, "a.parquet")
    assert round_trip(writer, path, big=np.array([1]))["big"] == [1]
    writer.merge([path], path.with_name("b.parquet"))
    assert writer.read(path.with_name("b.parquet"))["big"] == [1]
    assert writer.smallest([path], "big", "true", first_if="true") == 1


def test_a_name_with_a_pattern_does_not_reach_its_neighbour(writer, tmp_path):
    writer.write(TABLE, {"big": np.array([1])}, tmp_path / "x*" / "a.parquet")
    writer.write(TABLE, {"big": np.array([2])}, tmp_path / "xyz" / "a.parquet")
    assert writer.read(tmp_path / "x*" / "a.parquet")["big"] == [1]


def test_a_writer_that_failed_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    failed = ParquetWriter()
    texts = [TextColumn(np.ones(2, np.uint32), values) for values in ([None, "fine"], [None, "\ud800"])]
    table = TableSchema("texts", "Two of them.", (Column("one", "VARCHAR", ""), Column("other", "VARCHAR", "")))
    with pytest.raises(duckdb.Error):
        failed.write(table, {"one": texts[0], "other": texts[1]}, tmp_path / "failed.parquet")
    failed.close()
    following = ParquetWriter()
    known = following._connection.execute(
        "SELECT table_name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal"
    ).fetchall()
    following.close()
    assert known == []


def test_a_connection_that_was_interrupted_is_not_handed_on(tmp_path: Path) -> None:
    interrupted = ParquetWriter()
    interrupted._connection.execute("SELECT * FROM range(100000)")  # nobody fetches it any more
    interrupted.close()
    following = ParquetWriter()
    following.write(TABLE, {"big": np.arange(3)}, tmp_path / "a.parquet")
    assert following.read(tmp_path / "a.parquet")["big"] == [0, 1, 2]
    following.close()
