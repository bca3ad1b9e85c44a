"""How much slower each host was than the others of its run, for all runs: the rows that slow hosts are found in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import duckdb
import numpy as np
import numpy.typing as npt

from lostflops.fleet.hours import NS_PER_HOUR
from lostflops.fleet.robust import Floats, Ints, compute_group_medians
from lostflops.fleet.summary import RunSummary

_QUERY: Final = """
    with runs as (
        select dense_rank() over (order by name) - 1 as job, row_number() over (order by run) - 1 as run, start,
            total_ns / 3.6e12 as rank_hours, hosts
        from {relation}),
    every as (select unnest(hosts) as host, * exclude (hosts) from runs),
    seen as (
        select host.host as name, coalesce(host.device, '') as kind, host.slower as slower,
            host.slower_error as error, job, run, start, rank_hours
        from every where host.host is not null and host.slower is not null),
    names as (select name, row_number() over (order by name) - 1 as host from (select distinct name from seen)),
    devices as (select kind, row_number() over (order by kind) - 1 as device from (select distinct kind from seen))
    select host, job, run, start, device, slower, error, rank_hours from seen join names using (name)
        join devices using (kind)"""
_NAMES: Final = """
    select distinct host.host from (select unnest(hosts) as host from {relation})
    where host.host is not null and host.slower is not null order by all"""


_IMPOSSIBLE: Final = 1e3
"""A host that needs a thousand times as long, or an error of it, is a mistake of whoever wrote it, and unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """Columns with one row for each host in each run. Names are numbers."""

    names: Sequence[str]
    """Name of each host."""
    host: Ints
    """Index in `names`."""
    job: Ints
    """Runs of a job may give a host the same role, so they count less than runs of as many jobs."""
    run: Ints
    start: Ints
    """Unix time in ns."""
    device: Ints
    """Hosts are compared with those of the same device."""
    slower: Floats
    """How much more time it needs than the median host of its run; NaN if unknown."""
    error: Floats
    """Standard error of `slower`; NaN if unknown."""
    rank_hours: Floats
    """Of all ranks of the run: they wait for the slowest host."""

    def select(self, rows: npt.NDArray[np.bool_] | Ints) -> HostTimes:
        """Select rows, in this order."""
        columns = {field.name: getattr(self, field.name)[rows] for field in fields(self) if field.name != "names"}
        return replace(self, **columns)

    def add(self, parts: Floats) -> HostTimes:
        """Make each host slower than it was by a part."""
        return replace(self, slower=(1 + self.slower) * (1 + parts) - 1)


def read_host_times(summaries: Iterable[RunSummary]) -> HostTimes:
    """Read the host times of summaries."""
    rows = [
        (host.host, run.name, run.run, run.start, host.device or "", host.slower, host.slower_error, run.total_ns)
        for run in summaries
        for host in run.hosts
        if host.host is not None and host.slower is not None
    ]
    names, jobs, runs, starts, devices, slower, errors, totals = zip(*rows, strict=True) if rows else ((),) * 8
    return HostTimes(
        names=sorted(set(names)),
        host=_number(names),
        job=_number(jobs),
        run=_number(runs),
        start=np.array(starts, np.int64),
        device=_number(devices),
        slower=np.array(slower, float),
        error=np.array(errors, float),
        rank_hours=np.array(totals, float) / NS_PER_HOUR,
    )


def query_host_times(connection: duckdb.DuckDBPyConnection, relation: str) -> HostTimes:
    """Read the host times of a relation with the columns of `RunSummary`."""
    columns = connection.sql(_QUERY.format(relation=relation)).fetchnumpy()
    names = [name for (name,) in connection.sql(_NAMES.format(relation=relation)).fetchall()]
    numbers = {name: columns[name].astype(np.int64) for name in ("host", "job", "run", "start", "device")}
    reals = {name: np.ma.filled(columns[name].astype(float), np.nan) for name in ("slower", "error", "rank_hours")}
    return HostTimes(names=names, **numbers, **reals)


def prepare_host_times(times: HostTimes) -> HostTimes:
    """Compare hosts with those of the same run and device, drop unknown values, and sort by host and time.

    `job` becomes a number for each host in each job.
    """
    times = times.select((times.slower > -1) & (times.slower < _IMPOSSIBLE))
    slower = _compare_same_devices(times)
    error = _fill_errors(times.error)
    job = times.host * (int(times.job.max(initial=0)) + 1) + times.job
    order = np.lexsort((times.run, times.start, times.host))
    return replace(times, slower=slower, error=error, job=job).select(order[np.isfinite(slower[order])])


def _number(names: Iterable[str]) -> Ints:
    """Number names in their order, so that the order of rows does not matter."""
    listed = list(names)
    codes = {name: code for code, name in enumerate(sorted(set(listed)))}
    return np.array([codes[name] for name in listed], np.int64)


def _compare_same_devices(times: HostTimes) -> Floats:
    """Compare hosts of runs with several devices with those of the same device; NaN if there is no other."""
    kinds = int(times.device.max(initial=0)) + 1
    if kinds == 1:
        return times.slower
    pairs, group, sizes = np.unique(times.run * kinds + times.device, return_inverse=True, return_counts=True)
    is_mixed = np.bincount(pairs // kinds)[times.run] > 1
    middle = compute_group_medians(times.slower, group, len(pairs))[group]
    compared = np.where(sizes[group] > 1, (1 + times.slower) / (1 + middle) - 1, np.nan)
    return np.where(is_mixed, compared, times.slower)


def _fill_errors(errors: Floats) -> Floats:
    """Give values without an error a large one of the others; 0 if no error is known."""
    is_known = (errors >= 0) & (errors < _IMPOSSIBLE)
    large = float(np.quantile(errors[is_known], 0.95)) if is_known.any() else 0.0
    return np.where(is_known, errors, large)
