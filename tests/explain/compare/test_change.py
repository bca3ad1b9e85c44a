"""How often differences are called that are none, and whether those are found that are there."""

import numpy as np
import pytest
from benchmarks.diff.gate import ONE_SIDED, PATTERNS, judge

from lostflops.account.pace.blocks import Location, mean, typical
from lostflops.core.stats import MachineKind
from lostflops.explain.compare.change import Noise, Verdict, change, verdict
from lostflops.explain.compare.gate import GateOutcome, outcome
from lostflops.explain.compare.power import estimate_needed_runs


def located(*values, error=0.0):
    return [Location(value, error, 50) for value in values]


def judged(before, after, machine=MachineKind.HOST, margin=0.02):
    middle = change(before, after, machine)
    return verdict(middle, middle, margin)


def called(chance, runs, between_runs, trials, slower=0.0):
    """How often two sides of so many runs are called different, by their locations alone."""
    count = 0
    for _ in range(trials):
        before, after = (located(*np.exp(between_runs * chance.normal(size=count_of))) for count_of in runs)
        after = [Location(run.value * (1 + slower), 0.0, 50) for run in after]
        count += judged(before, after) in (Verdict.FASTER, Verdict.SLOWER)
    return count / trials


@pytest.mark.parametrize("runs", [(2, 2), (2, 5), (4, 4), (1, 4), (2, 20), (20, 2)])
@pytest.mark.few(2)
def test_runs_of_one_job_are_seldom_called_different(runs):
    assert called(np.random.default_rng(1), runs, 0.03, 300) <= 0.05


def test_a_bootstrap_of_two_runs_would_be_far_too_narrow():
    """Why Welch: with two runs a side, resampled runs deviate by half as much as means of two do, and have no tails."""
    chance, wrong = np.random.default_rng(2), 0
    picks = np.array([(i, j) for i in range(2) for j in range(2)])
    for _ in range(500):
        before, after = chance.normal(size=(2, 2))
        drawn = (after[picks].mean(axis=1)[:, None] - before[picks].mean(axis=1)).ravel()
        wrong += not np.quantile(drawn, 0.025) <= 0 <= np.quantile(drawn, 0.975)
    assert wrong / 500 > 0.2


def test_a_tenth_is_found_with_three_runs_of_each():
    assert called(np.random.default_rng(3), (3, 3), 0.01, 100, slower=0.1) >= 0.9


def test_one_run_of_each_never_calls_what_runs_differ_by():
    assert judged(located(100), located(105)) is Verdict.INCONCLUSIVE
    assert judged(located(100), located(98.1), MachineKind.ACCELERATOR) is Verdict.INCONCLUSIVE
    assert judged(located(100), located(113)) is Verdict.SLOWER
    assert judged(located(100), located(105), MachineKind.ACCELERATOR) is Verdict.SLOWER
    assert judged(located(100), located(100.0)) is Verdict.INCONCLUSIVE  # no difference is a claim too


def series(chance, lasting, spread, steps=60):
    """Steps of a machine whose speed wanders slowly: an autoregressive level, and noise of each step on top of it."""
    level = np.zeros(steps + 1)
    level[0] = chance.normal()
    for step in range(steps):
        level[step + 1] = lasting * level[step] + np.sqrt(1 - lasting**2) * chance.normal()
    return np.exp(spread * level[1:] + 0.1 * chance.normal(size=steps))


@pytest.mark.parametrize(
    ("lasting", "spread", "most"), [(0.5, 0.3, 0.05), (0.9, 0.3, 0.05), (0.97, 0.3, 0.1), (0.9, 0.05, 0.05)]
)
@pytest.mark.few(1)
def test_one_run_of_each_on_a_drifting_machine_is_seldom_called_different(lasting, spread, most):
    """A run shows only a part of a drift that lasts as long as itself (0.97: 33 of 60 steps)."""
    chance, trials = np.random.default_rng(8), 150
    pairs = [[typical(series(chance, lasting, spread)) for _ in range(2)] for _ in range(trials)]
    called = sum(judged([a], [b]) is not Verdict.INCONCLUSIVE for a, b in pairs)
    assert called / trials <= most


def test_one_run_of_each_on_a_calm_machine_finds_thirty_percent():
    chance, trials = np.random.default_rng(9), 50
    pairs = [[series(chance, 0.9, 0.05) for _ in range(2)] for _ in range(trials)]
    found = [judged([typical(a)], [typical(1.3 * b)]) for a, b in pairs]
    assert found.count(Verdict.SLOWER) >= 0.9 * trials


def test_no_difference_needs_an_interval_within_the_margin():
    near = located(100.1, 99.9, 100.0, 100.05)
    assert judged(near, located(100.2, 100.0, 100.1, 100.1)) is Verdict.SAME
    assert judged(near, located(100.2, 100.0, 100.1, 100.1), margin=0.001) is Verdict.INCONCLUSIVE
    assert judged(located(100, 103, 98), located(101, 97, 104)) is Verdict.INCONCLUSIVE


def test_a_certain_difference_below_one_percent_is_not_called():
    assert judged(located(100.0, 100.01, 99.99), located(100.5, 100.51, 100.49)) is Verdict.SAME


def test_long_steps_that_are_few_are_found_by_the_mean():
    chance = np.random.default_rng(4)

    def run(long):
        steps = 100 * np.exp(0.01 * chance.normal(size=200))
        steps[::20] += long
        return steps

    sides = [[run(long) for _ in range(4)] for long in (0, 150)]
    middle = change(*([typical(one) for one in side] for side in sides), MachineKind.HOST)
    average = change(*([mean(one) for one in side] for side in sides), MachineKind.HOST)
    assert middle.sign == 0
    assert average.value == pytest.approx(0.075, abs=0.01)
    assert verdict(middle, average) is Verdict.SLOWER


def test_the_error_of_a_location_is_what_locations_differ_by():
    chance = np.random.default_rng(5)
    found = []
    for _ in range(100):
        drawn = np.convolve(chance.normal(size=450), 0.6 ** np.arange(30), mode="full")[:450]
        found.append(typical(100 + drawn[50:]))
    true = np.std([one.value for one in found])
    told = np.median([one.error * one.value for one in found])
    assert told == pytest.approx(true, rel=0.25)
    independent = np.std(drawn[50:]) / np.sqrt(400)
    assert told > 1.5 * independent  # what it would be if steps knew nothing of each other


def compare_steps(before, after):
    """Compare one run of each, by the typical step and by the mean."""
    return [change([locate(before)], [locate(after)], MachineKind.ACCELERATOR) for locate in (typical, mean)]


def test_one_run_of_each_shows_long_steps_that_come_back():
    """Every tenth step ten times longer, in 200 steps: the mean is 90% longer, and the typical step is not."""
    before, after = np.exp(0.02 * np.random.default_rng(10).normal(size=(2, 200)))
    after[::10] *= 10
    middle, average = compare_steps(before, after)
    assert middle.sign == 0
    assert verdict(middle, average) is Verdict.SLOWER
    assert outcome(middle, average, 0.02) is GateOutcome.REGRESSED
    assert outcome(average, middle, 0.02) is GateOutcome.REGRESSED


def test_a_mean_that_is_unknown_passes_nothing():
    """One step in a hundred stalls: a run shows too few stalls to know how often they occur."""
    before, after = np.exp(0.005 * np.random.default_rng(11).normal(size=(2, 200)))
    before[[50, 130]] *= 10
    after[[20, 170]] *= 10
    middle, average = compare_steps(before, after)
    assert middle.at_most < 0.05 < average.at_most
    assert outcome(middle, average, 0.05) is GateOutcome.INCONCLUSIVE
    assert verdict(middle, average, 0.1) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("twice", [1, 2])
def test_the_assumed_spread_may_be_half_of_the_true_one(twice):
    """Runs of one level each, without noise of steps: only the spread between runs decides."""
    chance, pairs = np.random.default_rng(12), 3000
    levels = np.exp(chance.normal(size=(pairs, 2)) * twice * MachineKind.ACCELERATOR.spread)

    def count(slower, wanted):
        changes = [change(located(a), located(b * (1 + slower)), MachineKind.ACCELERATOR) for a, b in levels]
        return sum(outcome(found, found, 0.02) is wanted for found in changes) / pairs

    assert count(0.04, GateOutcome.PASSED) <= 0.05
    assert count(0.0, GateOutcome.REGRESSED) <= 0.02


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.few(2)
def test_the_gate_is_seldom_wrong(pattern):
    """A small part of the table in docs/explanation/comparing.md."""
    for cell in judge(pattern, 60):
        if cell["spread"] > 1:
            continue
        if cell["slower"] == 0.04 or pattern == ONE_SIDED:
            assert cell.get("gate: passed", 0) <= 0.05 * cell["pairs"]
        elif not cell["slower"]:
            assert cell.get("gate: regressed", 0) <= 0.02 * cell["pairs"]


def test_one_step_tells_nothing():
    assert typical(np.array([5.0])).error == np.inf
    assert judged([typical(np.array([5.0]))], [typical(np.array([50.0]))]) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("runs", [2, 4])
def test_as_many_runs_as_are_asked_for_find_three_percent(runs):
    """A first look, then the number that it asks for: nine of ten planted regressions are found."""
    chance, found, trials = np.random.default_rng(7), 0, 120
    for _ in range(trials):
        before, after = (located(*np.exp(0.01 * chance.normal(size=runs))) for _ in range(2))
        seen = change(before, after, MachineKind.HOST)
        asked = estimate_needed_runs(seen.noise, 0.03, runs=runs, steps=100).runs
        before, after = (located(*(level * np.exp(0.01 * chance.normal(size=asked)))) for level in (1, 1.03))
        found += judged(before, after) is Verdict.SLOWER
    assert found / trials >= 0.9


@pytest.mark.parametrize(("first", "second", "period", "longer"), [(119, 125, 20, 20), (590, 610, 100, 100)])
def test_one_more_checkpoint_in_the_last_part_of_a_period_is_no_regression(first, second, period, longer):
    chance = np.random.default_rng(4)
    for _ in range(10):
        runs = [100 * np.exp(0.01 * chance.normal(size=steps)) for steps in (first, second)]
        for times in runs:
            times[period - 1 :: period] *= 1 + longer
        sides = [[[where(times)] for times in runs] for where in (typical, mean)]
        found = [change(*side, MachineKind.ACCELERATOR) for side in sides]
        assert outcome(*found, 0.03) is not GateOutcome.REGRESSED


def test_steps_are_asked_for_where_they_are_the_noise():
    calm = estimate_needed_runs(Noise(0.02, 0.02, 100.0), 0.03, runs=5, steps=100)
    assert calm.steps is not None
    assert calm.steps > 100
    assert (
        estimate_needed_runs(Noise(0.02, 0.02, 100.0), 0.03, runs=3, steps=100).steps is None
    )  # too few to know that it is steps
    assert estimate_needed_runs(Noise(0.05, 0.001, 8.0), 0.01, runs=5, steps=100).steps is None
    assert estimate_needed_runs(Noise(np.inf, np.inf, np.inf), 0.03, runs=1, steps=1).runs is None


def test_a_smaller_difference_needs_more_runs():
    asked = [
        estimate_needed_runs(Noise(0.01, 0.001, 8), effect, runs=5, steps=100).runs for effect in (0.02, 0.01, 0.005)
    ]
    assert asked[0] < asked[1] < asked[2]


def test_no_number_of_runs_is_advised_where_the_noise_is_unknown() -> None:
    unknown = estimate_needed_runs(Noise(float("inf"), float("inf"), 0.0), 0.03, runs=2, steps=1)
    assert (unknown.runs, unknown.steps) == (None, None)
