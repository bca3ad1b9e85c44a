"""Regressions on known truth: rates of detection and of false alarms, and what must not matter."""

import random as plain_random
import tracemalloc
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.fleet.change_points import (
    compute_deviates,
    find_breaks,
)
from lostflops.fleet.regressions import JobHistory, find_regressions
from lostflops.fleet.step_noise import OWN_NOISE, fit_step_noise
from lostflops.fleet.step_times import StepTime, query_step_times, read_step_times
from lostflops.fleet.summary import COLUMNS
from lostflops.testing.fleet import FleetPlan, GeneratedFleet

STEPS = st.lists(st.floats(0.9, 1.1), min_size=6, max_size=20)


def make_times(steps: list[float], *, job: str = "job", commits: str = "", held_up: float = 0.0) -> list[StepTime]:
    """Make the runs of a job; each has the commit of its letter."""
    return [
        StepTime(
            job, 64, "H100", f"run{place:03d}", 100 * place, 1e9 * step, 1e-3, (commits or "a" * 99)[place], held_up
        )
        for place, step in enumerate(steps)
    ]


def draw_steps(*levels: tuple[float, int], noise: float = 0.004, seed: int = 0) -> list[float]:
    """Draw steps at each level in turn, so many of them."""
    random = np.random.default_rng(seed)
    means = np.concatenate([np.full(count, level) for level, count in levels])
    return (means * np.exp(random.normal(0, noise, len(means)))).tolist()


def ask(times: list[StepTime]) -> JobHistory:
    (pace,) = find_regressions(times)
    return pace


def test_a_regression_is_reported_with_its_commit() -> None:
    pace = ask(make_times(draw_steps((1.0, 12), (1.03, 8)), commits="a" * 6 + "b" * 6 + "c" * 8))
    (change,) = pace.changes
    assert (change.run_before, change.run) == ("run011", "run012")
    assert (change.commit_before, change.commit) == ("b", "c")
    assert change.is_slower
    assert change.low < 0.03 < change.high
    assert change.runs_until_seen <= 5
    assert pace.slower == change.slower == pytest.approx(pace.slower_than_best)
    assert pace.now.runs == 8
    assert pace.noise == pytest.approx(0.004, rel=0.4)


def test_an_improvement_is_no_regression() -> None:
    pace = ask(make_times(draw_steps((1.0, 12), (0.95, 8))))
    assert [change.is_slower for change in pace.changes] == [False]
    assert pace.slower < -0.04
    assert pace.slower_than_best == 0


def test_changes_are_listed_newest_first() -> None:
    pace = ask(make_times(draw_steps((1.0, 12), (1.05, 10), (1.02, 10))))
    assert [change.run for change in pace.changes] == ["run022", "run012"]
    assert [change.is_slower for change in pace.changes] == [False, True]
    assert pace.slower < 0 < pace.slower_than_best


def test_jobs_that_are_slower_now_come_first() -> None:
    jobs = {"same": 1.0, "worse": 1.08, "bad": 1.04, "better": 0.9}
    times = [
        time
        for seed, (job, level) in enumerate(jobs.items())
        for time in make_times(draw_steps((1.0, 10), (level, 10), seed=seed), job=job)
    ]
    assert [pace.job for pace in find_regressions(times)] == ["worse", "bad", "same", "better"]


@pytest.mark.parametrize("before", range(4))
def test_a_short_series_gives_no_alarm(before: int) -> None:
    assert ask(make_times([1.0, 1.001, 0.999, 1.0][:before] + [1.2] * 3)).changes == ()


def test_one_wild_run_is_no_change() -> None:
    steps = draw_steps((1.0, 30))
    steps[15], steps[29] = 1.3, 1.5
    assert ask(make_times(steps)).changes == ()


def test_equal_steps_are_no_change_and_a_step_among_them_is() -> None:
    assert ask(make_times([1.0] * 20)).changes == ()
    (change,) = ask(make_times([1.0] * 10 + [1.03] * 10)).changes
    assert (change.run, change.slower) == ("run010", pytest.approx(0.03))


def test_changes_below_one_percent_are_not_reported() -> None:
    assert ask(make_times([1.0] * 10 + [1.005] * 10)).changes == ()


def test_what_a_slow_host_cost_is_no_regression() -> None:
    steps = draw_steps((1.0, 20))
    slow = make_times([step / 0.9 for step in steps], held_up=0.1)
    times = make_times(steps)
    assert ask(times[:12] + slow[12:]).changes == ()
    assert ask(times[:12] + [time._replace(held_up=0.0) for time in slow[12:]]).changes


def test_runs_of_other_sizes_and_devices_are_other_series() -> None:
    times = make_times(draw_steps((1.0, 20)))
    other = [time._replace(ranks=128, run=f"other{time.run}", step_ns=time.step_ns * 2) for time in times]
    paces = find_regressions(times + other)
    assert [(pace.ranks, pace.runs, pace.changes) for pace in paces] == [(64, 20, ()), (128, 20, ())]


def test_unknown_errors_devices_and_commits_are_no_problem() -> None:
    times = make_times(draw_steps((1.0, 12), (1.05, 8)))
    unknown = [time._replace(step_error=None, device=None, commit=None) for time in times]
    assert [change.run for change in ask(unknown).changes] == ["run012"]


def test_no_runs_are_no_jobs() -> None:
    assert find_regressions([]) == ()


@given(st.integers(0, 500), st.floats(0.01, 100))
def test_a_constant_factor_and_the_order_of_rows_change_nothing(seed: int, factor: float) -> None:
    times = make_times(draw_steps((1.0, 12), (1.04, 8), noise=0.01, seed=seed))
    scaled = [time._replace(step_ns=time.step_ns * factor) for time in times]
    plain_random.Random(seed).shuffle(scaled)
    pace, other = ask(times), ask(scaled)
    assert [change.run for change in other.changes] == [change.run for change in pace.changes]
    assert (other.slower, other.noise) == pytest.approx((pace.slower, pace.noise), rel=1e-6, abs=1e-9)
    assert other.now.step_ns == pytest.approx(pace.now.step_ns * factor)


@given(STEPS)
def test_what_was_known_after_some_runs_stays_known(steps: list[float]) -> None:
    values = np.log([*steps, *steps])[None, :]
    errors, lengths = np.full(values.shape, 1e-3), np.array([values.shape[1]])
    (all_breaks,) = find_breaks(values, errors, lengths, OWN_NOISE)
    for stop in range(6, values.shape[1]):
        (breaks,) = find_breaks(values[:, :stop], errors[:, :stop], np.array([stop]), OWN_NOISE)
        assert breaks == [one for one in all_breaks if one.seen < stop]


@given(STEPS)
def test_the_test_is_that_of_student_where_no_run_is_wild(steps: list[float]) -> None:
    values = 1 + 1e-4 * np.array(steps)  # so close that noise is at its floor, and weights are equal
    rises, _ = compute_deviates(values[None, :], np.zeros((1, len(steps))), OWN_NOISE)
    naive = [values[place:].mean() - values[:place].mean() for place in range(4, len(steps) - 1)]
    np.testing.assert_allclose(rises[0], naive, atol=1e-12)


def test_series_that_are_alike_borrow_noise_and_others_do_not() -> None:
    random = np.random.default_rng(4)
    alike = 0.01 * random.standard_normal((100, 40))
    noise = fit_step_noise([(alike, np.full(100, 40))])
    assert noise.runs >= 20
    assert noise.spread == pytest.approx(0.01, rel=0.1)
    assert noise.correlation < 0.1
    unlike = alike * np.exp(random.normal(0, 1, (100, 1)))
    assert fit_step_noise([(unlike, np.full(100, 40))]).runs < 4
    assert fit_step_noise([(alike[:5], np.full(5, 40))]) == OWN_NOISE


def test_neighbours_that_are_alike_are_seen() -> None:
    noise = np.random.default_rng(5).standard_normal((200, 40))
    for place in range(1, 40):
        noise[:, place] = 0.5 * noise[:, place - 1] + np.sqrt(0.75) * noise[:, place]
    assert fit_step_noise([(0.01 * noise, np.full(200, 40))]).correlation == pytest.approx(0.5, abs=0.12)


def test_sql_and_python_read_the_same(tmp_path: Path) -> None:
    runs = list(GeneratedFleet(FleetPlan(runs=40, hosts=256, slow_hosts=0.1)).summaries())
    runs[0] = msgspec.structs.replace(runs[0], step_error=None, commit=None)
    runs[1] = msgspec.structs.replace(runs[1], hosts=[], lines={}, window_ns=0)
    runs[2] = msgspec.structs.replace(runs[2], step_ns=None)
    (tmp_path / "runs.jsonl").write_bytes(b"\n".join(msgspec.json.encode(run) for run in runs))
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in COLUMNS.items())
    source = f"read_json('{tmp_path / 'runs.jsonl'}', format = 'newline_delimited', columns = {{{columns}}})"
    asked = {time.run: time for time in query_step_times(duckdb.connect(), source)}
    read = read_step_times(runs)
    assert len(read) == len(asked) == 39
    assert sum(time.held_up > 0 for time in read) > 10
    for time in read:
        assert asked[time.run]._asdict() == pytest.approx(time._asdict())


def score(kind: str, noise: float, series: int, seed: int) -> tuple[float, float]:
    """Return the share of 3% regressions certain within 5 runs, and of unchanged series with an alarm."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((series, 40)) if kind == "normal" else random.standard_t(4, (series, 40)) / 2**0.5
    values *= noise
    places = random.integers(8, 31, series)
    changed = values + np.log(1.03) * (np.arange(40) >= places[:, None])
    shares = []
    for table in (changed, values):
        times = [time for row, steps in enumerate(np.exp(table)) for time in make_times(steps, job=f"{row:04d}")]
        paces = sorted(find_regressions(times), key=lambda pace: pace.job)
        seen = [[int(change.seen[3:]) for change in pace.changes if change.is_slower] for pace in paces]
        is_changed = table is changed
        limits = [(place, place + 5) if is_changed else (0, 40) for place in places]
        shares.append(
            np.mean([any(low <= at < stop for at in own) for own, (low, stop) in zip(seen, limits, strict=True)])
        )
    return float(shares[0]), float(shares[1])


def test_regressions_are_found_soon_and_unchanged_series_are_quiet() -> None:
    found, false = score("normal", 0.005, 100, 600)
    assert found >= 0.98
    assert false <= 0.04


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "heavy tails"])
@pytest.mark.parametrize(("noise", "least"), [(0.005, 0.99), (0.01, 0.85), (0.015, 0.35)])
def test_rates_are_those_stated(kind: str, noise: float, least: float) -> None:
    found, false = score(kind, noise, 2000, 601)
    assert found >= least
    assert false <= 0.015


def test_jobs_with_few_runs_cost_no_memory_for_the_longest_series() -> None:
    times = [StepTime("long", 8, "H100", f"{run:04}", run, 1e9, 0.001, None) for run in range(300)]
    times += [StepTime(f"short{job}", 8, "H100", f"s{job}", 0, 1e9, 0.001, None) for job in range(3000)]
    tracemalloc.start()
    found = find_regressions(times)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 3001
    assert peak < 10e6


def test_one_job_of_many_runs_takes_no_memory_for_each_of_the_others() -> None:
    times = make_times(draw_steps((1.0, 1200), (1.03, 300)), job="long", commits="a" * 1500)
    for number in range(600):
        times += make_times(draw_steps((1.0, 8), seed=number), job=f"short{number}")
    tracemalloc.start()
    try:
        (first, *_) = find_regressions(times)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (first.job, first.changes[0].run) == ("long", "run1200")
    assert peak < 12e6
