"""Blocks of plain and gzipped files, and what is said of damage."""

import gzip
import hashlib
import os

import pytest

from lostflops.ingest.common.byte_stream import ByteStream


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 10])
def test_members_of_a_gzip_may_begin_anywhere_in_a_block(tmp_path, cut):
    """A block that ends one byte into the next member must not pass for the end of the data."""
    first = gzip.compress(os.urandom(5_000))
    path = tmp_path / "two.gz"
    path.write_bytes(first + gzip.compress(b"second"))
    stream = ByteStream(path, block=len(first) + cut)
    assert b"".join(stream.blocks())[-6:] == b"second"
    assert stream.problem is None
    assert stream.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_padding_is_fine_and_garbage_is_said(tmp_path):
    for tail, is_fine in ((b"\0" * 100, True), (b"garbage", False)):
        path = tmp_path / "one.gz"
        path.write_bytes(gzip.compress(b"first") + tail)
        stream = ByteStream(path)
        assert b"".join(stream.blocks()) == b"first"
        assert (stream.problem is None) == is_fine
