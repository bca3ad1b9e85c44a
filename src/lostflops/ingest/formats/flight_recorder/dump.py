"""Content of a dump of c10d's Flight Recorder, pickled or as JSON.

The fields are those of torch/csrc/distributed/c10d/FlightRecorder.hpp and FlightRecorderDetail.hpp, versions 2.0 to
2.10. A dump of c10d does not state its rank, which comes from the file's name. Gloo dumps do not list the members of
groups either; `join.flight` adds them from the rank's trace.
"""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from lostflops.core.errors import BrokenSource
from lostflops.ingest.common import safe_pickle
from lostflops.ingest.common.group_ids import group_id, parse_ranks
from lostflops.ingest.common.ops import canonical_op, dtype_bytes
from lostflops.store.tables import FLIGHT

_COLUMNS = tuple(name for name in FLIGHT.column_names() if name != "rank")
_JSON_MARKS = (b'"collective_seq_id"', b'"comm_lib_version"', b'"pg_status"', b'"nccl_comm_state"')
_PICKLE_MARKS = (b"pg_config", b"entries", b"comm_lib_version", b"nccl_version")
_STATES = ("scheduled", "started", "completed")
_RANK_IN_NAME = (
    re.compile(r"rank[_-]?(\d{1,7})(?!\d)", re.IGNORECASE),
    re.compile(r"(?<![a-z])(?:dump|trace|fr)[_-]?(\d{1,7})$", re.IGNORECASE),
)
_SUFFIXES = re.compile(r"(\.(json|pkl|pickle|trace|gz|zst))+$", re.IGNORECASE)


class GroupRow(NamedTuple):
    """This rank's membership in a group, as in table `groups`."""

    group_id: str
    position: int | None
    size: int
    name: str
    description: str | None
    backend: str | None


class GroupMembers(NamedTuple):
    """Members of a group."""

    ranks: Sequence[int]
    """In the order of their rank within the group."""
    description: str | None = None


Stat: TypeAlias = tuple[str, str, int, str]
"""Name, effect, count and reason, as in table `stats`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FlightDump:
    """One rank's dump."""

    columns: dict[str, list[Any]]
    """Columns of table `flight` without `rank`."""
    groups: list[GroupRow]
    stats: list[Stat]
    backend: str | None
    """The only backend in the columns, otherwise None."""
    world_size: int | None
    version: str | None


def recognises(head: bytes) -> bool:
    """Return whether the first bytes of the file (a few KB) look like a dump."""
    if head[:1] == b"\x80":
        return b"version" in head and any(mark in head for mark in _PICKLE_MARKS)
    return head.lstrip()[:1] == b"{" and any(mark in head for mark in _JSON_MARKS)


def load(data: bytes, path: Path) -> dict[str, Any]:
    """Return the dump as plain data."""
    document: Any
    if data[:1] == b"\x80":
        document = safe_pickle.loads(data, path.name)
    else:
        try:
            document = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BrokenSource(
                f"{path.name}: not valid JSON ({error}). Was the job killed while it wrote the dump? Dump again."
            ) from None
    if not isinstance(document, dict) or not document.keys() & {"entries", "pg_config", "pg_status"}:
        raise BrokenSource(
            f"{path.name}: not a Flight Recorder dump, it has neither `entries` nor `pg_config` nor `pg_status`. "
            "Give the file that torch._C._distributed_c10d._dump_fr_trace() or the watchdog wrote."
        )
    return document


def rank_claim(path: Path, document: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the rank of the dump, and where it comes from: `recorded`, `file name` or `` (unknown).

    >>> rank_claim(Path("run7/_dump_3"), {}), rank_claim(Path("rank12_fr.json"), {})
    ((3, 'file name'), (12, 'file name'))
    """
    recorded = document.get("rank")
    if type(recorded) is int and recorded >= 0:
        return recorded, "recorded"
    stem = _SUFFIXES.sub("", path.name)
    for pattern in _RANK_IN_NAME:
        found = pattern.findall(stem)
        if found:
            return int(found[-1]), "file name"
    return None, ""


def parse_dump(data: bytes, path: Path, rank: int) -> FlightDump:
    document = load(data, path)
    counts: Counter[tuple[str, str]] = Counter()
    entries = document.get("entries", [])
    if not isinstance(entries, list):
        raise BrokenSource(f"{path.name}: `entries` is a {type(entries).__name__}, not a list. Write the dump again.")
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("profiling_name"), str):
            counts["flight_entries_malformed", "dropped"] += 1
            continue
        row = _row(entry, counts)
        for name in _COLUMNS:
            columns[name].append(row.get(name))
    version = document.get("version")
    dump = FlightDump(
        columns=columns,
        groups=[],
        stats=[(what, effect, count, _REASONS[what]) for (what, effect), count in sorted(counts.items())],
        backend=_only([_backend(name) for name in columns["name"]]),
        world_size=None,
        version=version if isinstance(version, str) else None,
    )
    return with_members(dump, _recorded_members(document), rank)


GROUPS_UNKNOWN = "The dump does not list the members of the group (gloo never does); group_id is null."
_REASONS = {
    "flight_entries_malformed": "An entry is not a record with a `profiling_name`.",
    "flight_fields_missing": "Entries lack fields that this version of the recorder should write; these are null.",
    "flight_fields_unreadable": "Fields have unexpected values; these are null.",
    "flight_gloo_state_unknown": "The recorder never updates the state of gloo calls; finished ones have a null state.",
    "flight_groups_unknown": GROUPS_UNKNOWN,
    "flight_rank_not_in_group": "The dump lists a group without this rank; is the file of another rank?",
}


def with_members(dump: FlightDump, members: Mapping[str, GroupMembers], rank: int) -> FlightDump:
    """Return the dump with ids and memberships of the groups in `members`; those that it already has stay."""
    known = {row.name for row in dump.groups}
    backends: dict[str, list[str | None]] = {}
    for title, group in zip(dump.columns["name"], dump.columns["group_name"], strict=True):
        backends.setdefault(group, []).append(_backend(title))
    groups = list(dump.groups)
    for name, (ranks, description) in members.items():
        if name not in known and ranks:
            position = list(ranks).index(rank) if rank in ranks else None
            described = None if description in ("", "undefined") else description
            backend = _only(backends.get(name, []))
            groups.append(GroupRow(group_id(name, ranks), position, len(ranks), name, described, backend))
    ids = {row.name: row.group_id for row in groups}
    group_ids = [ids.get(group) for group in dump.columns["group_name"]]
    stats = [stat for stat in dump.stats if stat[0] not in ("flight_groups_unknown", "flight_rank_not_in_group")]
    for what, effect, count in (
        ("flight_groups_unknown", "missing", group_ids.count(None)),
        ("flight_rank_not_in_group", "note", sum(row.position is None for row in groups)),
    ):
        if count:
            stats.append((what, effect, count, _REASONS[what]))
    default = next((row for row in groups if row.description == "default_pg"), None)
    return dataclasses.replace(
        dump,
        columns=dump.columns | {"group_id": group_ids},
        groups=groups,
        stats=stats,
        world_size=default.size if default else None,
    )


def _recorded_members(document: Mapping[str, Any]) -> dict[str, GroupMembers]:
    configuration = document.get("pg_config")
    members: dict[str, GroupMembers] = {}
    for name, group in configuration.items() if isinstance(configuration, dict) else ():
        if not isinstance(name, str) or not isinstance(group, dict):
            continue
        listed, description = group.get("ranks"), group.get("desc")
        ranks = parse_ranks(listed if isinstance(listed, str) else json.dumps(listed, default=str))
        if ranks:
            members[name] = GroupMembers(ranks, description if isinstance(description, str) else None)
    return members


def _row(entry: dict[str, Any], counts: Counter[tuple[str, str]]) -> dict[str, Any]:
    name: str = entry["profiling_name"]
    is_p2p = _field(entry, "is_p2p", _boolean, counts)
    collective_seq = _field(entry, "collective_seq_id", _integer, counts)
    p2p_seq = _field(entry, "p2p_seq_id", _integer, counts)
    in_shapes = _field(entry, "input_sizes", _shapes, counts)
    out_shapes = _field(entry, "output_sizes", _shapes, counts)
    in_dtypes = _field(entry, "input_dtypes", _texts, counts)
    out_dtypes = _field(entry, "output_dtypes", _texts, counts)
    return {
        "record": _field(entry, "record_id", _integer, counts),
        "group_name": _field(entry, "process_group", _name_of_group, counts),
        # Each counter goes on counting through entries of the other kind; only its own is the entry's number.
        "seq": None if is_p2p else collective_seq,
        "p2p_seq": p2p_seq if is_p2p else None,
        "op_id": _field(entry, "op_id", _integer, counts),
        "op": canonical_op(name),
        "name": name,
        "is_p2p": is_p2p,
        "state": _state(entry, counts),
        "created": _field(entry, "time_created_ns", _integer, counts) or None,
        # JSON writes 0 and pickle writes None for what was not seen.
        "started": _field(entry, "time_discovered_started_ns", _integer_or_none, counts) or None,
        "completed": _field(entry, "time_discovered_completed_ns", _integer_or_none, counts) or None,
        "dtype": ",".join(dict.fromkeys(in_dtypes)) if in_dtypes else None,
        "bytes_in": _bytes(in_shapes, in_dtypes),
        "bytes_out": _bytes(out_shapes, out_dtypes),
        "in_shapes": None if in_shapes is None else json.dumps(in_shapes),
        "out_shapes": None if out_shapes is None else json.dumps(out_shapes),
        "source": _source(entry.get("frames")),
    }


class _Unreadable(Exception):
    """A field does not have a value of the expected form."""


def _field(entry: dict[str, Any], key: str, convert: Callable[[Any], Any], counts: Counter[tuple[str, str]]) -> Any:
    if key not in entry:
        counts["flight_fields_missing", "missing"] += 1
        return None
    try:
        return convert(entry[key])
    except _Unreadable:
        counts["flight_fields_unreadable", "dropped"] += 1
        return None


def _integer(value: Any) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise _Unreadable
    return value


def _integer_or_none(value: Any) -> int | None:
    return None if value is None else _integer(value)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _Unreadable
    return value


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _Unreadable
    return value


def _shapes(value: Any) -> list[list[int]]:
    if not isinstance(value, list) or not all(isinstance(shape, list | tuple) for shape in value):
        raise _Unreadable
    shapes = [[_integer(size) for size in shape] for shape in value]
    if any(size < 0 for shape in shapes for size in shape):
        raise _Unreadable
    return shapes


def _bytes(shapes: list[list[int]] | None, dtypes: list[str] | None) -> int | None:
    if shapes is None or dtypes is None or len(shapes) != len(dtypes):
        return None
    total = 0
    for shape, dtype in zip(shapes, dtypes, strict=True):
        size = dtype_bytes(dtype)
        if size is None:
            return None
        total += math.prod(shape) * size
    return total if total < 1 << 63 else None


def _name_of_group(name_and_description: Any) -> str:
    if not isinstance(name_and_description, list | tuple) or len(name_and_description) != 2:
        raise _Unreadable
    name = name_and_description[0]
    if not isinstance(name, str):
        raise _Unreadable
    return name


def _one_of_the_states(value: Any) -> str:
    if not isinstance(value, str) or value not in _STATES:
        raise _Unreadable
    return value


def _state(entry: dict[str, Any], counts: Counter[tuple[str, str]]) -> str | None:
    state: str | None = _field(entry, "state", _one_of_the_states, counts)
    if state == "scheduled" and entry.get("retired") is True and _backend(entry["profiling_name"]) == "gloo":
        # ProcessGroupGloo.cpp records no events, so the state stays `scheduled`, and retires a work
        # once it has run, whether it succeeded or not.
        counts["flight_gloo_state_unknown", "note"] += 1
        return None
    return state


def _source(frames: Any) -> str | None:
    """Return the innermost line outside torch.distributed itself, as `file.py(12): function`."""
    usable = [
        frame
        for frame in (frames if isinstance(frames, list) else ())
        if isinstance(frame, dict) and isinstance(frame.get("filename"), str)
    ]
    if not usable:
        return None
    outside = (frame for frame in usable if "torch/distributed/" not in frame["filename"].replace("\\", "/"))
    frame = next(outside, usable[0])
    return f"{frame['filename']}({frame.get('line', '?')}): {frame.get('name', '?')}"


def _backend(title: str) -> str | None:
    backend, colon, _ = title.partition(":")
    return backend if colon else None


def _only(backends: list[str | None]) -> str | None:
    seen = {backend for backend in backends if backend}
    return seen.pop() if len(seen) == 1 else None
