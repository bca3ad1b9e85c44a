"""Connections of one process share a database, and nothing that they create or read."""

import duckdb
import pytest

from lostflops.store import connections
from lostflops.store.connections import connect


def test_two_connections_have_views_of_the_same_name():
    with connect() as first, connect() as second:
        first.execute("create temp view events as select 1 as one")
        second.execute("create temp view events as select 2 as two")
        assert (first.sql("from events").fetchall(), second.sql("from events").fetchall()) == ([(1,)], [(2,)])
    with connect() as third, pytest.raises(duckdb.CatalogException):
        third.execute("from events")


def test_a_file_that_was_written_again_is_read_again(tmp_path):
    for number in range(3):
        with connect() as connection:
            connection.execute(f"copy (select {number} as n) to '{tmp_path}/n.parquet' (format parquet)")
            assert connection.execute(f"from '{tmp_path}/n.parquet'").fetchall() == [(number,)]


def test_a_database_that_ended_is_opened_again():
    connect().close()
    connections._open_database(connections.limit_database(10**9), None).close()
    with connect() as connection:
        assert connection.execute("select 1").fetchall() == [(1,)]


def test_threads_are_limited():
    with connect(threads=1) as connection:
        assert connection.execute("select current_setting('threads')").fetchall() == [(1,)]
