"""Slow hosts on known truth: rates of detection and of blame, and what must not matter."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.core.units import format_share
from lostflops.fleet.host_stretches import _find_largest_sums
from lostflops.fleet.host_times import HostTimes, query_host_times, read_host_times
from lostflops.fleet.slow_hosts import HostVerdict, SlowHosts, find_slow_hosts
from lostflops.fleet.summary import COLUMNS, HostSummary
from lostflops.testing.fleet import FleetPlan, GeneratedFleet

Effect = Callable[[int, int], float]
"""How much a host adds in a run."""


def make_times(
    effect: Effect,
    *,
    hosts: int = 24,
    runs: int = 60,
    size: int = 12,
    jobs: int = 10,
    noise: float = 0.005,
    seed: int = 0,
) -> HostTimes:
    """Make runs of `size` random hosts; run 0 is the first."""
    random = np.random.default_rng(seed)
    usual = random.normal(0, 0.003, hosts)
    placed = [random.choice(hosts, size, replace=False) for _ in range(runs)]
    slower = []
    for run, chosen in enumerate(placed):
        own = 1 + usual[chosen] + [effect(host, run) for host in chosen.tolist()] + random.normal(0, noise, size)
        slower.append(own / np.median(own) - 1)
    run = np.repeat(np.arange(runs), size)
    return HostTimes(
        names=[f"node{host:02d}" for host in range(hosts)],
        host=np.concatenate(placed),
        job=run % jobs,
        run=run,
        start=1000 + 10 * run,
        device=np.zeros(len(run), int),
        slower=np.concatenate(slower),
        error=np.full(len(run), noise),
        rank_hours=np.ones(len(run)),
    )


def name_slow(found: SlowHosts) -> list[str]:
    return sorted(host.host for host in found.slow)


def get_host(found: SlowHosts, name: str) -> HostVerdict:
    return next(host for host in found.hosts if host.host == name)


def test_a_slow_host_is_named_with_its_effect_and_its_cost() -> None:
    times = make_times(lambda host, run: 0.06 * (host == 3))
    found = find_slow_hosts(times)
    assert name_slow(found) == ["node03"]
    (host,) = found.slow
    assert host.low < 0.06 < host.high
    assert host.high - host.low < 0.02
    assert (host.since, host.until) == (host.first_seen, None)
    assert host.runs == (times.host == 3).sum() == host.rank_hours
    assert host.lost_rank_hours == pytest.approx(host.rank_hours * 0.06 / 1.06, rel=0.2)
    assert found.expected_false < 0.01


def test_no_host_is_slow_or_healthy_for_certain() -> None:
    """Floating point rounds the odds of the slow one to 1, and those of the others to 0."""
    found = find_slow_hosts(make_times(lambda host, run: 0.5 * (host == 3)))
    assert format_share(found.slow[0].probability) == ">99.9%"
    assert {format_share(host.probability) for host in found.hosts[-3:]} == {"<0.1%"}


def test_no_host_is_named_in_a_healthy_fleet() -> None:
    assert name_slow(find_slow_hosts(make_times(lambda host, run: 0))) == []


def test_a_host_that_became_slow_is_named_since_then() -> None:
    found = find_slow_hosts(make_times(lambda host, run: 0.08 * (host == 5 and run >= 30)))
    assert name_slow(found) == ["node05"]
    assert 1300 <= found.slow[0].since <= 1350
    assert found.slow[0].until is None
    assert found.slow[0].low < 0.08 < found.slow[0].high


def test_a_host_that_was_repaired_is_named_until_then() -> None:
    found = find_slow_hosts(make_times(lambda host, run: 0.08 * (host == 5 and run < 30)))
    assert name_slow(found) == ["node05"]
    assert 1250 <= found.slow[0].until < 1300


def test_one_wild_run_makes_no_host_slow() -> None:
    assert name_slow(find_slow_hosts(make_times(lambda host, run: 0.5 * (host == 5 and run == 30)))) == []


def test_a_role_in_one_of_many_jobs_makes_no_host_slow() -> None:
    roles = np.random.default_rng(9).standard_t(4, (24, 10)) * 0.01
    roles[5, 0] = 0.05
    assert name_slow(find_slow_hosts(make_times(lambda host, run: roles[host, run % 10], runs=200))) == []


def test_a_host_seen_once_is_suspected_but_not_named() -> None:
    times = make_times(lambda host, run: 0.2 * (host == 5))
    first = np.flatnonzero(times.host == 5)[0]
    rows = np.flatnonzero((times.host != 5) | (np.arange(len(times.host)) == first))
    found = find_slow_hosts(times.select(rows))
    assert name_slow(found) == []
    assert found.hosts[0].host == "node05"
    assert found.hosts[0].probability > 0.9
    assert found.hosts[0].since is None


def test_runs_of_two_hosts_blame_the_slow_one_only() -> None:
    times = make_times(lambda host, run: 0.1 * (host == 1), hosts=6, runs=120, size=2)
    found = find_slow_hosts(times)
    assert name_slow(found) == ["node01"]
    assert found.slow[0].slower == pytest.approx(0.1, abs=0.02)


def test_slow_code_and_a_shared_network_blame_no_host() -> None:
    found = find_slow_hosts(make_times(lambda host, run: 0.4 * (run % 10 == 2) + 0.2 * (run % 7 == 0)))
    assert name_slow(found) == []


def test_hosts_are_compared_with_those_of_the_same_device() -> None:
    times = make_times(lambda host, run: 0.5 * (host % 3 == 0) + 0.06 * (host == 6))
    times = replace(times, device=(times.host % 3 == 0).astype(int))
    assert name_slow(find_slow_hosts(times)) == ["node06"]


def test_unknown_values_are_left_out() -> None:
    times = make_times(lambda host, run: 0.06 * (host == 3))
    random = np.random.default_rng(1)
    slower = np.where(random.random(len(times.slower)) < 0.2, np.nan, times.slower)
    error = np.where(random.random(len(times.slower)) < 0.2, np.nan, times.error)
    found = find_slow_hosts(replace(times, slower=slower, error=error))
    assert name_slow(found) == ["node03"]
    assert get_host(found, "node03").runs == np.isfinite(slower[times.host == 3]).sum()


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_almost_no_rows_name_no_host(rows: int) -> None:
    times = make_times(lambda host, run: 0.1 * (host == 0))
    assert find_slow_hosts(times.select(np.arange(rows))).slow == ()


def test_rows_without_errors_are_compared_too() -> None:
    times = make_times(lambda host, run: 0.06 * (host == 3))
    assert name_slow(find_slow_hosts(replace(times, error=np.full(len(times.error), np.nan)))) == ["node03"]


@given(st.integers(0, 1000), st.floats(0.5, 3))
def test_a_factor_on_all_hosts_of_a_run_changes_nothing(seed: int, factor: float) -> None:
    plain = make_times(lambda host, run: 0.06 * (host == 3), seed=seed)
    random = np.random.default_rng(seed)
    factors = 1 + (factor - 1) * random.random(int(plain.run.max()) + 1)
    own = (1 + plain.slower) * factors[plain.run]
    middles = np.array([np.median(own[plain.run == run]) for run in range(len(factors))])
    scaled = find_slow_hosts(replace(plain, slower=own / middles[plain.run] - 1))
    for host in find_slow_hosts(plain).hosts:
        other = get_host(scaled, host.host)
        assert (other.slower, other.probability) == pytest.approx((host.slower, host.probability), rel=1e-5, abs=1e-9)


@given(st.integers(0, 1000))
def test_the_order_of_rows_and_the_numbers_of_jobs_and_runs_change_nothing(seed: int) -> None:
    times = make_times(lambda host, run: 0.06 * (host == 3 and run > 20), seed=seed)
    random = np.random.default_rng(seed)
    jobs, runs = random.permutation(10), random.permutation(60)
    shuffled = replace(times, job=jobs[times.job], run=runs[times.run]).select(random.permutation(len(times.host)))
    hosts, others = (find_slow_hosts(columns).hosts for columns in (times, shuffled))
    for host, other in zip(hosts, others, strict=True):
        assert (other.host, other.is_slow, other.since) == (host.host, host.is_slow, host.since)
        assert (other.slower, other.probability) == pytest.approx((host.slower, host.probability))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), max_size=30))
def test_the_best_stretch_is_the_best_of_all(rows: list[tuple[int, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    host, gains = np.array([row[0] for row in rows], int), np.array([row[1] for row in rows], float)
    best, first, last = _find_largest_sums(gains, host, 4)
    for number in range(4):
        places = np.flatnonzero(host == number)
        if places.size:
            low, stop = places[0], places[-1] + 1
            sums = [gains[start:end].sum() for start in range(low, stop) for end in range(start + 1, stop + 1)]
            assert best[number] == max(sums) == gains[first[number] : last[number] + 1].sum()


def test_sql_and_python_read_the_same(tmp_path: Path) -> None:
    runs = list(GeneratedFleet(FleetPlan(runs=40, hosts=256)).summaries())
    unnamed = HostSummary(host=None, device=None, ranks=8, window_ns=0, lines={}, slower=0.1, slower_error=0.1)
    runs[0] = msgspec.structs.replace(runs[0], hosts=[*runs[0].hosts, unnamed])
    table = load_runs(tmp_path, runs)
    read, asked = read_host_times(runs), query_host_times(table, "runs")
    assert list(read.names) == list(asked.names)
    for column in ("host", "job", "run", "start", "device", "slower", "error", "rank_hours"):
        orders = (np.lexsort((times.host, times.run)) for times in (read, asked))
        ours, theirs = (getattr(times, column)[order] for times, order in zip((read, asked), orders, strict=True))
        np.testing.assert_allclose(ours, theirs)


def load_runs(folder: Path, runs: list[object]) -> duckdb.DuckDBPyConnection:
    """Load summaries into a table `runs`."""
    (folder / "runs.jsonl").write_bytes(b"\n".join(msgspec.json.encode(run) for run in runs))
    connection = duckdb.connect()
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in COLUMNS.items())
    read = f"read_json('{folder / 'runs.jsonl'}', format = 'newline_delimited', columns = {{{columns}}})"
    connection.sql(f"create table runs as from {read}")
    return connection


def score(seeds: range) -> tuple[float, float, float]:
    """Return the share of slow hosts found, of healthy hosts blamed, and of named hosts that are healthy."""
    found = planted = wrong = healthy = 0
    for seed in seeds:
        fleet = GeneratedFleet(FleetPlan(runs=300, hosts=256, jobs=30, seed=seed))
        hosts = find_slow_hosts(read_host_times(fleet.summaries()))
        named, truth = {host.host for host in hosts.slow}, {host.host for host in fleet.truth.slow_hosts}
        found, planted = found + len(named & truth), planted + len(truth)
        wrong, healthy = wrong + len(named - truth), healthy + len(hosts.hosts) - len(truth)
    return found / planted, wrong / healthy, wrong / max(found + wrong, 1)


def test_planted_hosts_are_found_and_healthy_ones_are_not_blamed() -> None:
    found, blamed, false = score(range(500, 506))
    assert found >= 0.9
    assert blamed <= 0.002
    assert false <= 0.05


@pytest.mark.slow
def test_planted_hosts_are_found_at_the_stated_rate() -> None:
    found, blamed, false = score(range(1000, 1100))
    assert found >= 0.95
    assert blamed <= 0.001
    assert false <= 0.01
