"""The runs that a question is about: chosen in one place, so that every answer about them has the same figures.

Whether a job became slower, or a host is slow, is judged by all runs of the same days and labels, also if a question is
about one job or host: a job shows the usual noise badly alone, and a host is compared with the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.errors import UsageError
from lostflops.fleet.host_times import query_host_times
from lostflops.fleet.regressions import JobHistory, JobStatus, find_regressions
from lostflops.fleet.slow_hosts import SlowHosts, find_slow_hosts
from lostflops.fleet.step_times import query_step_times

if TYPE_CHECKING:
    import duckdb

    from lostflops.fleet.place import Fleet

SeriesKey = tuple[str, int, str | None]
"""Name, ranks and device of a job."""
ANY: Final = "*"
"""In the name of a job: any letters, also none."""
CHOSEN: Final = "chosen"
"""Table of the chosen runs."""
_PEERS: Final = "peers"
JUDGED: Final = frozenset({
    *("run", "name", "labels", "start", "ranks", "device", "commit", "step_ns", "step_error", "total_ns", "window_ns"),
    *("lines", "hosts"),
})  # fmt: skip
"""Columns that judgements and conditions read."""
_HAS_HOST: Final = "list_contains(list_transform(hosts, lambda one: one.host), ?)"
_DROP_OTHERS: Final = f"""
    delete from {CHOSEN} where not exists (
        select 1 from (select unnest($names) as job, unnest($ranks) as width, unnest($devices) as kind) as kept
        where job = name and width = ranks and kind is not distinct from device
    )"""
_SERIES: Final = f"select distinct name, ranks, device from {CHOSEN}"
_HOSTS: Final = f"""
    select distinct host.host from (select unnest(hosts) as host from {_PEERS} where run in (select run from {CHOSEN}))
    where host.host is not null"""
_LABELS: Final = f"select distinct entry.key from {CHOSEN}, unnest(map_entries(labels)) as t(entry) order by 1"
_WEEK_NS: Final = 7 * 86_400 * 1_000_000_000
_MOST_KEPT: Final = 16
_EMPTY: Final = "the fleet {0} has no runs yet: add some with lostflops fleet add {0} RUN..."
_NO_MATCH: Final = "no run matches: leave out --job, --label or other choices, or add runs with lostflops fleet add"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetScope:
    """The runs that a question is about."""

    job: str = ""
    """Name of the job, in which `ANY` is any letters."""
    is_pattern: bool = True
    """If false, the name of the job is meant as it is."""
    since: date | None = None
    week: date | None = None
    """Any day of the week in which the runs started."""
    host: str = ""
    status: JobStatus | None = None
    run: str = ""
    """Identity of a run."""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def peers(self) -> FleetScope:
        """Return the scope of the runs by which jobs and hosts are judged."""
        return replace(self, job="", is_pattern=True, host="", run="", status=None)

    @property
    def key(self) -> Hashable:
        """Return what equal scopes share."""
        labels = tuple(sorted(self.labels.items()))
        return self.job, self.is_pattern, self.since, self.week, self.host, self.run, self.status, labels

    @property
    def since_ns(self) -> int | None:
        """Return a time before which none of these runs and of their peers started; None if any time is possible."""
        days = [day for day in (self.since, self.week and _monday(self.week)) if day is not None]
        return max(map(_ns, days), default=None)

    def condition(self) -> tuple[str, list[Any]]:
        """Return SQL and its values; a status is not a part of it."""
        terms, values = ["true"], list[Any]()
        if self.job:
            is_pattern = self.is_pattern and ANY in self.job
            terms.append("(name = ? or name ilike ? escape '\\')" if is_pattern else "name = ?")
            values += [self.job, _escape(self.job)] if is_pattern else [self.job]
        if self.since is not None:
            terms.append("start >= ?")
            values.append(_ns(self.since))
        if self.week is not None:
            monday_ns = _ns(_monday(self.week))
            terms.append("start >= ? and start < ?")
            values += [monday_ns, monday_ns + _WEEK_NS]  # after the last week of 9999 there is no date
        for name, value in self.labels.items():
            terms.append("map_extract_value(labels, ?) = ?")
            values += [name, value]
        if self.run:
            terms.append("run = ?")
            values.append(self.run)
        if self.host:
            terms.append(_HAS_HOST)
            values.append(self.host)
        return " and ".join(terms), values


@dataclass(slots=True)
class Judgements:
    """What the runs of a fleet show of its jobs and hosts, kept for further questions to the same fleet."""

    _histories: dict[Hashable, tuple[JobHistory, ...]] = field(default_factory=dict)
    _hosts: dict[Hashable, SlowHosts] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def judge_jobs(self, connection: duckdb.DuckDBPyConnection, scope: FleetScope) -> tuple[JobHistory, ...]:
        with self._lock:
            if scope.key not in self._histories:
                _make_room(self._histories)
                self._histories[scope.key] = find_regressions(query_step_times(connection, _PEERS))
            return self._histories[scope.key]

    def judge_hosts(self, connection: duckdb.DuckDBPyConnection, scope: FleetScope) -> SlowHosts:
        with self._lock:
            if scope.key not in self._hosts:
                _make_room(self._hosts)
                self._hosts[scope.key] = find_slow_hosts(query_host_times(connection, _PEERS))
            return self._hosts[scope.key]


class ChosenRuns:
    """Runs in table `chosen` of a connection, and what their peers show of their jobs and hosts."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, scope: FleetScope, judged: Judgements) -> None:
        self.connection = connection
        self.scope = scope
        self.notes: list[str] = []
        self._judged = judged

    @property
    def is_part(self) -> bool:
        """Return whether jobs and hosts are judged by more runs than the chosen ones."""
        return self.scope.key != self.scope.peers.key

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the names of labels."""
        return tuple(name for (name,) in self.connection.execute(_LABELS).fetchall())

    @cached_property
    def histories(self) -> tuple[JobHistory, ...]:
        """Return the histories of the chosen jobs: first those that are slower now, by how much."""
        histories = self._judged.judge_jobs(self.connection, self.scope.peers)
        if not self.is_part:
            return histories
        kept: set[SeriesKey] = set(self.connection.execute(_SERIES).fetchall())
        return tuple(one for one in histories if (one.job, one.ranks, one.device) in kept)

    @cached_property
    def hosts(self) -> SlowHosts:
        """Return the hosts of the chosen runs, most likely slow first."""
        judged = self._judged.judge_hosts(self.connection, self.scope.peers)
        if not self.is_part:
            return judged
        kept = {name for (name,) in self.connection.execute(_HOSTS).fetchall()}
        hosts = tuple(host for host in judged.hosts if host.host in kept)
        return replace(judged, hosts=hosts, expected_false=sum(1 - host.probability for host in hosts if host.is_slow))

    def keep_status(self, status: JobStatus) -> None:
        """Drop the runs of jobs with another status."""
        known = {(one.job, one.ranks, one.device): one.status for one in self.histories}
        series: list[SeriesKey] = self.connection.execute(_SERIES).fetchall()
        kept = [one for one in series if known.get(one, JobStatus.UNKNOWN) is status]
        names, ranks, devices = (list(column) for column in zip(*kept, strict=True)) if kept else ([], [], [])
        self.connection.execute(_DROP_OTHERS, {"names": names, "ranks": ranks, "devices": devices})
        del self.histories


@contextmanager
def choose(
    fleet: Fleet, scope: FleetScope, columns: Sequence[str], judged: Judgements | None = None
) -> Iterator[ChosenRuns]:
    """Choose runs with these columns; raise if there is no such run.

    `judged` keeps judgements for further questions; it must be of the same runs.
    """
    with fleet.table(JUDGED.union(columns), scope.since_ns) as connection:
        _define_peers(connection, scope)
        condition, values = scope.condition()
        names = ", ".join(f'"{name}"' for name in columns)
        connection.execute(f"create temp table {CHOSEN} as select {names} from runs where {condition}", values)
        chosen = ChosenRuns(connection, scope, judged or Judgements())
        chosen.notes += fleet.notes
        if scope.status is not None:
            chosen.keep_status(scope.status)
        if not _count(connection, CHOSEN):
            is_empty = scope.since_ns is None and not _count(connection, "runs")
            raise UsageError(_EMPTY.format(fleet.place) if is_empty else _NO_MATCH)
        yield chosen


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    ((count,),) = connection.execute(f"select count(*) from {table}").fetchall()
    return int(count)


def _define_peers(connection: duckdb.DuckDBPyConnection, scope: FleetScope) -> None:
    """Make a view, which takes no parameters, so values are variables of the connection."""
    condition, values = scope.peers.condition()
    for number, value in enumerate(values):
        connection.execute(f"set variable value{number} = ?", [value])
        condition = condition.replace("?", f"getvariable('value{number}')", 1)
    connection.execute(f"create temp view {_PEERS} as select * from runs where {condition}")


def _make_room(kept: dict[Hashable, Any]) -> None:
    while len(kept) >= _MOST_KEPT:
        del kept[next(iter(kept))]


def _escape(pattern: str) -> str:
    """Return a pattern as SQL's LIKE writes it.

    >>> _escape("llama_*")
    'llama\\\\_%'
    """
    for letter in "\\%_":
        pattern = pattern.replace(letter, f"\\{letter}")
    return pattern.replace(ANY, "%")


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def _ns(day: date) -> int:
    return int(datetime.combine(day, datetime.min.time(), UTC).timestamp()) * 1_000_000_000
