"""The calibration file: what is read, what is refused, and the curves through it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lostflops.core.errors import BrokenSource, SourceError, UnknownFormat
from lostflops.predict.costs.calibration import (
    SCHEMA,
    CalibratedCollective,
    CalibratedHost,
    Calibration,
    Matmul,
    read_calibration,
    write_calibration,
)


def measured(level: str, hosts: int, beta: float) -> tuple[CalibratedCollective, ...]:
    return tuple(
        CalibratedCollective(
            op="all_reduce", level=level, ranks=4, hosts=hosts, bytes=size, ns=(int(9e3 + beta * size),) * 3
        )
        for size in (1024, 4096, 16384, 65536, 262144)
    )


MADE = Calibration(
    date="2026-01-31T12:00:00Z",
    world_size=4,
    hosts=(CalibratedHost(host="a", ranks=(0, 1)), CalibratedHost(host="b", ranks=(2, 3))),
    collectives=measured("host", 1, 1) + measured("world", 2, 8),
    matmuls=(Matmul(dtype="float32", m=8, n=8, k=8, ns=(5,)),),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_calibration(MADE, tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json") == MADE
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_the_file_of_the_measurement_is_read(tmp_path: Path) -> None:
    collective = {"op": "all_reduce", "level": "world", "ranks": 4, "hosts": 2, "at_once": 1, "bytes": 1024}
    body = {
        "schema": SCHEMA,
        "date": "2026-01-31T12:00:00Z",
        "seconds": 118.2,
        "nccl": None,
        "device": "cpu",
        "hosts": [{"host": "a", "ranks": [0, 1], "cpu": "model", "cores": 2, "memory": 25_000_000_000}],
        "collectives": [{**collective, "dtype": "float32", "ns": [5, 6]}],
        "copies": [{"direction": "h2d", "pinned": True, "bytes": 8, "ns": [1]}],
        "notes": ["said"],
        "later": "a key that a later version adds",
    }
    (tmp_path / "c.json").write_text(json.dumps(body))
    found = read_calibration(tmp_path / "c.json")
    assert found.samples == {("all_reduce", "world", 4, 2): {1024: [5, 6]}}
    assert found.hosts[0].cores == 2
    assert found.copies[0].pinned


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        ("no json", UnknownFormat, "not a calibration"),
        ("[1]", UnknownFormat, "not a calibration"),
        ("{}", UnknownFormat, "has no schema"),
        ('{"schema": "lostflops.report/1"}', UnknownFormat, r"lostflops\.report/1"),
        ('{"schema": "lostflops.calibration/2"}', BrokenSource, "version 2"),
        ('{"schema": "lostflops.calibration/1", "collectives": [{"op": 1}]}', BrokenSource, "damaged"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, error: type[SourceError], says: str) -> None:
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(error, match=says):
        read_calibration(tmp_path / "c.json")


@pytest.mark.parametrize("content", ["[" * 2000 + "]" * 2000, '{"schema": "lostflops.calibration/1", "x": DEEP}'])
def test_a_file_that_is_nested_too_deep_is_refused_in_words(tmp_path: Path, content: str) -> None:
    path = tmp_path / "deep.json"
    path.write_text(content.replace("DEEP", "[" * 200_000 + "]" * 200_000))
    with pytest.raises(SourceError, match=r"deep\.json"):
        read_calibration(path)


def test_a_missing_file_is_no_bug(tmp_path: Path) -> None:
    with pytest.raises(BrokenSource, match="cannot be read"):
        read_calibration(tmp_path / "c.json")


def test_curves_by_operation_and_group() -> None:
    alone = CalibratedCollective(op="broadcast", level="host", ranks=4, hosts=1, bytes=1024, ns=(5,))
    curves = Calibration(collectives=(*MADE.collectives, alone)).curves
    assert set(curves) == {("all_reduce", "host", 4, 1), ("all_reduce", "world", 4, 2)}
    assert curves["all_reduce", "world", 4, 2].pieces[0].beta.value == pytest.approx(8, rel=0.01)
    assert MADE.curves is MADE.curves


ROW = {"op": "all_reduce", "level": "host", "ranks": 2, "hosts": 1, "bytes": 1024, "ns": [5]}


@pytest.mark.parametrize(
    "wrong",
    [{"bytes": 0}, {"bytes": -1}, {"ranks": 0}, {"hosts": 0}, {"hosts": 3}, {"ns": [5, 0]}, {"ns": [-1]}],
    ids=str,
)
def test_what_nobody_can_have_measured_is_damage(tmp_path: Path, wrong: dict[str, object]) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({"schema": "lostflops.calibration/1", "collectives": [ROW, {**ROW, **wrong}]}))
    with pytest.raises(BrokenSource, match=r"is damaged: .*collectives\[1\]"):
        read_calibration(path)


def test_of_groups_alone_and_at_once_those_at_once_count() -> None:
    one = {"op": "all_reduce", "level": "across", "ranks": 2, "hosts": 2, "bytes": 1024}
    both = Calibration(
        collectives=(CalibratedCollective(**one, ns=(100,)), CalibratedCollective(**one, ns=(400, 410), at_once=8))
    )
    assert both.samples == {("all_reduce", "across", 2, 2): {1024: [400, 410]}}
