"""Calibrations from logs of nccl-tests.

A log states which ranks ran where, and has a row per size with the mean time of a call out of place and in place; both
are samples. Its size column follows times.py: it is the larger of a rank's input and output, which is the whole tensor
of all operations, while `count` is what one rank contributes. The columns show which operation ran (see `_FITTING`). If
they fit several, the name of the program or of the file decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lostflops.core.errors import BrokenSource, UnknownFormat, UsageError
from lostflops.core.units import pluralise
from lostflops.ingest.common.byte_stream import ByteStream
from lostflops.predict.costs.calibration import CalibratedCollective, CalibratedHost, Calibration
from lostflops.predict.costs.times import CommGroup

_PREFIX: Final = re.compile(r"^\s*\d+:\s")
"""Label that a launcher puts before each line to name its task."""
_HEADER: Final = re.compile(r"#.*\bminBytes\s+\d+\s+maxBytes\s+\d+")
_RANK: Final = re.compile(r"#\s+Rank\s+(\d{1,9})\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+ on\s+(\S+) device\s+\d+ \[\S+\] (.+)")
_VERSION: Final = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_NUMBER: Final = re.compile(r"nccl-library=(\d{1,9})")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_MOST_US: Final = 1e15
"""Times from here on are not times: in ns they do not fit into 64 bits."""
_PROGRAM: Final = re.compile(r"\b(\w+)_perf\b")
_COLUMNS: Final = 4
"""Columns of a result: time, algbw, busbw and errors, once out of place, once in place."""
_TYPES: Final = {
    **dict.fromkeys(("int8", "uint8", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("float", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "int64", "uint64"), 8),
}
_NAMES: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
    "scatter": "scatter",
    "gather": "gather",
    "reduce": "reduce",
}

# By whether it reduces, whether it has a root, and whether a rank contributes the whole size.
_FITTING: Final[dict[tuple[bool, bool, bool], tuple[str, ...]]] = {
    (True, False, True): ("all_reduce", "send_recv"),
    (True, True, True): ("reduce",),
    (True, False, False): ("reduce_scatter",),
    (False, True, True): ("broadcast",),
    (False, True, False): ("scatter", "gather"),
    (False, False, False): ("all_gather", "all_to_all"),
}


def read_nccl_tests(paths: Sequence[Path | str], op: str | None = None) -> Calibration:
    """Read all tests of all logs; `op` names the operation if neither the log nor its name does."""
    tests = [test for path in paths for test in _tests(Path(path))]
    names = {test.device for test in tests}
    if len(names) > 1:
        raise UsageError(f"the logs are from different devices: {', '.join(sorted(names))}. Calibrate each separately")
    hosts: dict[str, set[int]] = {}
    for test in tests:
        for rank, (host, _) in test.places.items():
            hosts.setdefault(host, set()).add(rank)
    return Calibration(
        backend="nccl",
        nccl=next((test.nccl for test in tests if test.nccl), None),
        device="cuda",
        device_name=next(iter(names), None),
        world_size=max(len(test.places) for test in tests),
        hosts=tuple(CalibratedHost(host=host, ranks=tuple(sorted(ranks))) for host, ranks in hosts.items()),
        collectives=tuple(one for test in tests for one in test.collectives(op)),
        notes=("The samples are means over many calls, as nccl-tests prints them.", *_notes(tests)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TestRow:
    size: int
    count: int
    dtype: str
    between: tuple[str, ...]
    """Words between the type and the times: the reduction and the root, if there are any."""
    us: tuple[float, ...]
    factor: float | None
    """busbw / algbw."""
    wrong: int


@dataclass(slots=True, kw_only=True)
class _Test:
    """Output of one program."""

    path: Path
    named: list[str]
    nccl: str | None = None
    device: str = ""
    places: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Host of each rank, and its group if the test is split into several that run at once."""
    rows: list[_TestRow] = field(default_factory=list)

    def take(self, line: str) -> None:
        if rank := _RANK.match(line):
            self.places[int(rank[1])] = rank[3], rank[2] or "0"
            self.device = rank[4].strip()
        elif version := _VERSION.search(line):
            self.nccl = version[1]
        elif row := _row(line):
            self.rows.append(row)

    @property
    def members(self) -> list[str]:
        """Hosts of the ranks of one group."""
        first = next(iter(self.places.values()))[1]
        return [host for host, group in self.places.values() if group == first]

    def collectives(self, asked: str | None) -> Iterator[CalibratedCollective]:
        op, ranks, hosts = self._op(asked), len(self.members), len(set(self.members))
        for row in self.rows:
            if row.size:
                yield CalibratedCollective(
                    op=op,
                    level="ring" if op == "send_recv" else CommGroup(ranks, hosts).level,
                    ranks=ranks,
                    hosts=hosts,
                    at_once=len({group for _, group in self.places.values()}),
                    bytes=row.size,
                    dtype=row.dtype,
                    ns=tuple(max(round(us * 1000), 1) for us in row.us),
                )

    def _op(self, asked: str | None) -> str:
        fitting = self._fitting()
        listed = " or ".join(fitting)
        if asked is not None:
            if asked not in fitting:
                raise UsageError(f"{self.path} is not a log of {asked}: its columns are those of {listed}")
            return asked
        if len(fitting) == 1:
            return fitting[0]
        for name in (*self.named, *_names(self.path.name)):
            if name in fitting:
                return name
        raise UsageError(f"{self.path} does not show whether {listed} ran: name it, as in --only {fitting[0]}")

    def _fitting(self) -> tuple[str, ...]:
        """Return the operations whose columns look like these."""
        largest = self.rows[-1]
        is_root = [word[0] != "-" for word in largest.between if _WHOLE.fullmatch(word)]
        reduces = any(not _WHOLE.fullmatch(word) and word != "none" for word in largest.between)
        whole = largest.count * _TYPES.get(largest.dtype, 0) == largest.size
        found = _FITTING.get((reduces, any(is_root), whole), ())
        if found == ("all_reduce", "send_recv") and len(self.members) > 2 and largest.factor is not None:
            return found[:1] if largest.factor > 1.1 else found[1:]
        if not found:
            raise BrokenSource(f"{self.path}: no nccl-tests operation prints these columns")
        return found


def _tests(path: Path) -> list[_Test]:
    named: list[str] = []
    found: list[_Test] = []
    for raw in _text(path).splitlines():
        line = _PREFIX.sub("", raw, count=1)
        named += [name for word in _PROGRAM.findall(line) for name in _names(word)]
        if _HEADER.search(line):
            found.append(_Test(path=path, named=named, nccl=found[-1].nccl if found else None))
            named = []
        if found:
            found[-1].take(line)
    library = _NUMBER.search(_text(path))
    for test in found:
        if test.nccl is None and library:
            test.nccl = _version(int(library[1]))
    whole = [test for test in found if test.places and any(row.size for row in test.rows)]
    if not whole:
        raise UnknownFormat(f"{path} is not an nccl-tests log: it has no test with ranks and rows of sizes and times")
    return whole


def _text(path: Path) -> str:
    stream = ByteStream(path)
    try:
        data = b"".join(stream.blocks())
    except OSError as error:
        raise BrokenSource(f"{path} cannot be read: {error}") from error
    if stream.problem is not None:
        raise BrokenSource(f"{path} cannot be read: {stream.problem}. Copy the log again")
    return data.decode(errors="replace")


def _row(line: str) -> _TestRow | None:
    """Parse a row, None if it is not one. Some tests have no in-place form and print N/A for it; only valid times are
    kept."""
    words = line.split()
    if len(words) < 3 + 2 * _COLUMNS:
        return None
    size, count = _count(words[0]), _count(words[1])
    if size is None or count is None:
        return None
    between, measured = tuple(words[3 : -2 * _COLUMNS]), words[-2 * _COLUMNS :]
    out_of_place, algbw, busbw, in_place = (_number(measured[place]) for place in (0, 1, 2, _COLUMNS))
    us = tuple(time for time in (out_of_place, in_place) if time)
    if not us or None in (algbw, busbw):
        return None
    factor = busbw / algbw if algbw and busbw else None
    wrong = sum(_count(word) or 0 for word in measured[_COLUMNS - 1 :: _COLUMNS])
    return _TestRow(size=size, count=count, dtype=words[2], between=between, us=us, factor=factor, wrong=wrong)


def _count(word: str) -> int | None:
    """Return a count in a word, None if it is anything else.

    >>> _count("35"), _count("-1"), _count("\N{SUPERSCRIPT TWO}"), _count("9" * 40)
    (35, None, None, None)
    """
    return int(word) if _WHOLE.fullmatch(word) and word[0] != "-" else None


def _number(word: str) -> float | None:
    """Return the number in a word, None if it is negative, not a number, or larger than any time.

    >>> _number("35.2"), _number("N/A"), _number("inf"), _number("-1"), _number("1e300")
    (35.2, None, None, None, None)
    """
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 <= value < _MOST_US else None


def _names(text: str) -> list[str]:
    """Return the operations that a program or file is named after, the longest name first.

    >>> _names("nccl_allreduce.log"), _names("reduce_scatter"), _names("slurm-104.out")
    (['all_reduce', 'reduce'], ['reduce_scatter', 'scatter', 'reduce'], [])
    """
    plain = text.lower().replace("_", "").replace("-", "")
    return [op for name, op in sorted(_NAMES.items(), key=lambda item: -len(item[0])) if name in plain]


def _version(number: int) -> str:
    """Return the version of NCCL that a number encodes.

    >>> _version(22803), _version(2804)
    ('2.28.3', '2.8.4')
    """
    major = 10_000 if number >= 10_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _notes(tests: Sequence[_Test]) -> Iterator[str]:
    rows = [row for test in tests for row in test.rows]
    if empty := sum(not row.size for row in rows):
        yield f"Left out: {pluralise(empty, 'row')} of size 0."
    if wrong := sum(row.wrong > 0 for row in rows):
        yield f"{pluralise(wrong, 'row')} with wrong results: the times come from a network that does not work."
