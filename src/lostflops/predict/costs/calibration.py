"""A calibration: every sample measured on a cluster, as stored in its file, and the curves fitted to them.

>>> sample = CalibratedCollective(op="all_reduce", level="host", ranks=8, hosts=1, bytes=1024, ns=(9000, 9100))
>>> Calibration(collectives=(sample,)).samples["all_reduce", "host", 8, 1]
{1024: [9000, 9100]}
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Final

import msgspec

from lostflops.core.errors import BrokenSource, UnknownCost, UnknownFormat
from lostflops.predict.costs.curve import Curve
from lostflops.predict.costs.fit import fit_curve

SCHEMA: Final = "lostflops.calibration/1"
_FAMILY: Final = SCHEMA.rpartition("/")[0]

Key = tuple[str, str, int, int]
"""Operation, level, ranks and hosts of a group."""
Samples = dict[int, list[int]]
"""Times in ns by size."""
Positive = Annotated[int, msgspec.Meta(ge=1, le=1 << 62)]
Ns = tuple[Positive, ...]


class CalibratedHost(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    ranks: tuple[int, ...] = ()
    cpu: str | None = None
    cores: int | None = None
    memory: int | None = None


class CalibratedCollective(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of one operation, group and size; sizes as in times.py."""

    op: str
    level: str
    ranks: Positive
    hosts: Positive
    bytes: Positive
    ns: Ns
    at_once: Positive = 1
    """Number of groups of this level that ran at the same time."""
    dtype: str | None = None

    def __post_init__(self) -> None:
        if self.hosts > self.ranks:
            raise ValueError(f"{self.ranks} ranks on {self.hosts} hosts")

    @property
    def key(self) -> Key:
        return self.op, self.level, self.ranks, self.hosts


class Matmul(msgspec.Struct, frozen=True, kw_only=True):
    dtype: str
    m: Positive
    n: Positive
    k: Positive
    ns: Ns


class CalibratedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of memory traffic of one kind and size."""

    kind: str
    bytes: Positive
    """Bytes read and written together."""
    ns: Ns


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    ns: Ns


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    direction: str
    bytes: Positive
    ns: Ns
    pinned: bool = False


class Calibration(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    schema: str = SCHEMA
    date: str | None = None
    seconds: float | None = None
    lostflops: str | None = None
    torch: str | None = None
    python: str | None = None
    backend: str | None = None
    nccl: str | None = None
    device: str | None = None
    device_name: str | None = None
    world_size: int | None = None
    hosts: tuple[CalibratedHost, ...] = ()
    collectives: tuple[CalibratedCollective, ...] = ()
    matmuls: tuple[Matmul, ...] = ()
    memory: tuple[CalibratedMemory, ...] = ()
    launches: tuple[Launch, ...] = ()
    copies: tuple[Copy, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def samples(self) -> dict[Key, Samples]:
        """Samples of each size by operation and group, in the order of sizes. If groups were measured alone and several
        at once, the most at once count, as in a job."""
        most: dict[Key, int] = {}
        for one in self.collectives:
            most[one.key] = max(one.at_once, most.get(one.key, 1))
        found: dict[Key, Samples] = {}
        for one in sorted(self.collectives, key=lambda one: (one.key, one.bytes)):
            if one.ns and one.at_once == most[one.key]:
                found.setdefault(one.key, {}).setdefault(one.bytes, []).extend(one.ns)
        return found

    @cached_property
    def curves(self) -> dict[Key, Curve]:
        """Curves by operation and group, without groups that were measured at a single size."""
        found: dict[Key, Curve] = {}
        for key, samples in self.samples.items():
            try:
                found[key] = fit_curve(list(samples), list(samples.values()))
            except UnknownCost:
                continue
        return found


_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of content that is not JSON, of another form, or nested too deep to be read."""


class _Header(msgspec.Struct):
    schema: str = ""


def read_calibration(path: Path | str) -> Calibration:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise BrokenSource(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        schema = msgspec.json.decode(data, type=_Header).schema
    except _UNREADABLE as error:
        raise UnknownFormat(f"{path} is not a calibration file: {error}. Make one with lostflops calibrate") from error
    family, _, version = schema.rpartition("/")
    if family != _FAMILY:
        found = f"its schema is {schema!r}" if schema else "it has no schema"
        raise UnknownFormat(f"{path} is not a calibration file: {found} (expected {SCHEMA!r})")
    if schema != SCHEMA:
        raise BrokenSource(f"{path} has schema version {version}; this version reads {SCHEMA}. Update Lostflops")
    try:
        return msgspec.json.decode(data, type=Calibration)
    except _UNREADABLE as error:
        raise BrokenSource(f"{path} is damaged: {error}") from error


def write_calibration(calibration: Calibration, path: Path | str) -> None:
    """Write the file whole or not at all."""
    target = Path(path)
    written = target.with_name(f".{target.name}.part")
    try:
        written.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=1) + b"\n")
        written.replace(target)
    finally:
        written.unlink(missing_ok=True)
