"""How much slower each host was than the others of its run, for all runs: the rows that slow hosts are found in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import numpy.typing as npt

from lostflops.fleet.robust import Floats, Ints, compute_group_medians
from lostflops.fleet.summary import RunSummary

_NS_PER_HOUR = 3.6e12
_QUERY = """
    select host.host as host, name as job, run, start, host.device as device, host.slower as slower,
        host.slower_error as error, total_ns / 3.6e12 as rank_hours
    from (select unnest(hosts) as host, name, run, start, total_ns from {relation})
    where host.host is not null and host.slower is not null"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """Columns with one row for each host in each run."""

    host: npt.NDArray[np.object_]
    job: npt.NDArray[np.object_]
    """Name of the job. Runs of a job may give a host the same role, so they count less than as many jobs."""
    run: npt.NDArray[np.object_]
    start: Ints
    """Unix time."""
    slower: Floats
    """How much more time it needs than the median host of its run; NaN if unknown."""
    error: Floats
    """Standard error of `slower`; NaN if unknown."""
    rank_hours: Floats
    """Of all ranks of the run: they wait for the slowest host."""
    device: npt.NDArray[np.object_] | None = None
    """Hosts are compared with those of the same device. None if each run has one kind."""


@dataclass(frozen=True, slots=True)
class CodedTimes:
    """Host times with numbers in place of names, sorted by host and time, without unknown values."""

    hosts: Sequence[str]
    host: Ints
    job: Ints
    """The same number for rows of one job on one host."""
    run: Ints
    start: Ints
    slower: Floats
    error: Floats
    rank_hours: Floats

    def select(self, rows: npt.NDArray[np.bool_]) -> CodedTimes:
        """Select rows."""
        return CodedTimes(
            self.hosts,
            self.host[rows],
            self.job[rows],
            self.run[rows],
            self.start[rows],
            self.slower[rows],
            self.error[rows],
            self.rank_hours[rows],
        )

    def add(self, parts: Floats) -> CodedTimes:
        """Add to how much slower each host was."""
        return replace(self, slower=(1 + self.slower) * (1 + parts) - 1)


def read_host_times(summaries: Iterable[RunSummary]) -> HostTimes:
    """Read the host times of summaries."""
    rows = [
        (host.host, run.name, run.run, run.start, host.slower, host.slower_error, run.total_ns, host.device)
        for run in summaries
        for host in run.hosts
        if host.host is not None and host.slower is not None
    ]
    names, jobs, runs, starts, slower, errors, totals, devices = zip(*rows, strict=True) if rows else ((),) * 8
    return HostTimes(
        host=np.array(names, object),
        job=np.array(jobs, object),
        run=np.array(runs, object),
        start=np.array(starts, np.int64),
        slower=np.array(slower, float),
        error=np.array(errors, float),
        rank_hours=np.array(totals, float) / _NS_PER_HOUR,
        device=np.array(devices, object),
    )


def query_host_times(connection: duckdb.DuckDBPyConnection, relation: str) -> HostTimes:
    """Read the host times of a relation with the columns of `RunSummary`."""
    columns = connection.sql(_QUERY.format(relation=relation)).fetchnumpy()
    unknown = {"slower": np.nan, "error": np.nan, "device": None}
    plain = {name: np.ma.filled(column, unknown.get(name)) for name, column in columns.items()}
    return HostTimes(**{**plain, "start": plain["start"].astype(np.int64)})


def code_host_times(times: HostTimes) -> CodedTimes:
    """Compare hosts with those of the same run and device, drop unknown values, and sort by host and time."""
    times = _select(times, np.isfinite(times.slower) & (times.slower > -1))
    host, hosts = _code(times.host)
    run, _ = _code(times.run)
    job, jobs = _code(times.job)
    slower = _compare_same_devices(times, run)
    order = np.lexsort((run, times.start, host))
    order = order[np.isfinite(slower[order])]
    return CodedTimes(
        hosts,
        host[order],
        np.unique(host[order] * max(len(jobs), 1) + job[order], return_inverse=True)[1].astype(np.int64),
        run[order],
        times.start[order],
        slower[order],
        _fill_errors(times.error)[order],
        times.rank_hours[order],
    )


def _select(times: HostTimes, rows: npt.NDArray[np.bool_]) -> HostTimes:
    """Select rows."""
    return HostTimes(
        host=times.host[rows],
        job=times.job[rows],
        run=times.run[rows],
        start=times.start[rows],
        slower=times.slower[rows],
        error=times.error[rows],
        rank_hours=times.rank_hours[rows],
        device=None if times.device is None else times.device[rows],
    )


def _code(names: npt.NDArray[np.object_]) -> tuple[Ints, list[str]]:
    """Number names in their order, so that the order of rows does not matter."""
    known = sorted(set(names.tolist()))
    codes = {name: code for code, name in enumerate(known)}
    return np.fromiter((codes[name] for name in names.tolist()), np.int64, len(names)), known


def _compare_same_devices(times: HostTimes, run: Ints) -> Floats:
    """Compare hosts of runs with several devices with those of the same device; NaN if there is no other."""
    if times.device is None:
        return times.slower
    device, _ = _code(np.array([str(name) for name in times.device.tolist()], object))
    pair, group = np.unique(run * (int(device.max(initial=0)) + 1) + device, return_inverse=True)
    is_mixed = np.bincount(run[np.unique(group, return_index=True)[1]], minlength=1)[run] > 1
    middle = compute_group_medians(times.slower, group, len(pair))[group]
    is_alone = np.bincount(group)[group] < 2
    compared = np.where(is_alone, np.nan, (1 + times.slower) / (1 + middle) - 1)
    return np.where(is_mixed, compared, times.slower)


def _fill_errors(errors: Floats) -> Floats:
    """Give values without an error a large one of the others: 0 if no error is known."""
    known = errors[np.isfinite(errors) & (errors >= 0)]
    large = float(np.quantile(known, 0.95)) if known.size else 0.0
    return np.where(np.isfinite(errors) & (errors >= 0), errors, large)
