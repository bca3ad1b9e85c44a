"""Process groups that a rank belongs to, as its Kineto trace lists them."""

from typing import Any

import msgspec

from lostflops.account.facts.mesh_names import kinds_of
from lostflops.ingest.common.group_ids import group_id


class _Group(msgspec.Struct):
    pg_name: str
    ranks: list[int]
    pg_desc: str | None = None
    backend_config: str | None = None


def memberships(document: dict[str, Any], rank: int) -> list[dict[str, Any]]:
    """Return rows of table `groups` from `distributedInfo.pg_config`, once each; entries in another form are skipped.

    >>> group = {"pg_name": "5", "pg_desc": "tp", "ranks": [2, 3]}
    >>> memberships({"distributedInfo": {"pg_config": [group, group, "?"]}}, 3)[0]["position"]
    1
    """
    info = document.get("distributedInfo")
    config = info.get("pg_config") if isinstance(info, dict) else None
    rows: dict[str, dict[str, Any]] = {}
    for entry in config if isinstance(config, list) else ():
        try:
            group = msgspec.convert(entry, _Group)
        except msgspec.ValidationError:
            continue
        if rank in group.ranks:
            row = _row(group, rank)
            rows.setdefault(row["group_id"], row)
    return list(rows.values())


def transfer_group(document: dict[str, Any], rank: int, places: set[int]) -> tuple[str, list[int]] | None:
    """Return id and members of the group in which the rank sends and receives; None if that is not certain.

    It is the only group in which the rank has a peer. Of several, it is the only one that is called pipeline parallel,
    if the rank has a peer at each of `places` in it, and no group is called context parallel: its ranks may send too.
    """
    info = document.get("distributedInfo")
    config = info.get("pg_config") if isinstance(info, dict) else None
    found: dict[str, _Group] = {}
    for entry in config if isinstance(config, list) else ():
        try:
            group = msgspec.convert(entry, _Group)
        except msgspec.ValidationError:
            return None
        if rank in group.ranks and len(group.ranks) > 1:
            found[group_id(group.pg_name, group.ranks)] = group
    if len(found) > 1:
        found = _sole_pipeline(found, rank, places)
    return next(((identity, group.ranks) for identity, group in found.items()), None)


def _sole_pipeline(groups: dict[str, _Group], rank: int, places: set[int]) -> dict[str, _Group]:
    """Return the group that is certainly the one of transfers, by its description; empty if no group is certain."""
    kinds = {identity: kinds_of(group.pg_desc) for identity, group in groups.items()}
    stages = {identity: groups[identity] for identity, named in kinds.items() if named == {"pp"}}
    if len(stages) != 1 or {"cp"} in kinds.values():
        return {}
    (group,) = stages.values()
    return stages if places <= set(range(len(group.ranks))) - {group.ranks.index(rank)} else {}


def _row(group: _Group, rank: int) -> dict[str, Any]:
    return {
        "group_id": group_id(group.pg_name, group.ranks),
        "position": group.ranks.index(rank),
        "size": len(group.ranks),
        "name": group.pg_name,
        "description": _drop_undefined(group.pg_desc),
        "backend": _drop_undefined(group.backend_config),
    }


def _drop_undefined(text: str | None) -> str | None:
    return None if text in ("", "undefined") else text
