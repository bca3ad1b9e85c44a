"""Random clusters against their truth; and the judges themselves, which must see every lie.

Two hundred large ones: pytest -m slow tests/integration/test_clusters.py; a thousand: cluster_trials.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from lostflops.testing import BASE_TIME, Generated, Model, Straggler, SyntheticCluster
from lostflops.testing.simulate import simulate
from tests.integration import cluster_trials
from tests.integration.cluster_trials import Outcome, broken_bounds, known_outcomes, run_trial, run_trials
from tests.integration.trial_checks import (
    EXPECTED,
    Json,
    clock_failures,
    ledger_failures,
    straggler_failures,
    true_offset,
)
from tests.integration.trial_clusters import LEAST_EFFECT, MOST_EVENTS, SHAPES, Health, Trial, is_seen, make_trial

SMALL, TINY = 16, 4


@pytest.mark.parametrize("number", [pytest.param(n, marks=pytest.mark.slow if n > 3 else ()) for n in range(12)])
@pytest.mark.parametrize("health", ["sick", "healthy"])
@pytest.mark.few(2)
def test_small_clusters(health: Health, number: int) -> None:
    assert run_trial(health, number, seed=0, most_ranks=SMALL).failures == {}


@pytest.mark.slow
def test_large_clusters() -> None:
    wanted: list[tuple[Health, int]] = [(health, n) for n in range(100) for health in ("sick", "healthy")]
    assert broken_bounds(list(run_trials(wanted, seed=2, jobs=2))) == []


@cache
def generated(health: Health, number: int) -> tuple[Trial, Generated]:
    trial = make_trial(health, number, most_ranks=SMALL)
    return trial, trial.cluster.generate()


def right_answers(trial: Trial, made: Generated) -> tuple[Json, int, list[Json], Json]:
    """Clock, instant, stragglers and report as a perfect analysis would give them."""
    instant = BASE_TIME + made.traces[0].stamp(made.truth.ranks[0].wall // 2)
    own = [rank.clock for rank in made.truth.ranks]
    offsets = [round(true_offset(own[0], clock, instant)) for clock in own]
    rows = [{"rank": rank, "offset_ns": ns, "uncertainty_ns": 10} for rank, ns in enumerate(offsets)]
    stragglers: list[Json] = []
    if trial.straggler:
        lines, name = EXPECTED[trial.straggler.cause]
        stragglers = [{"rank": trial.straggler.rank, "cause": {"line": lines[-1], "name": name}}]
    ranks = [{"rank": rank.rank, "wall_ns": rank.own_wall, "lines": rank.own_lines} for rank in made.truth.ranks]
    return {"reference": 0, "ranks": rows}, instant, stragglers, {"ranks": ranks}


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("health", ["sick", "healthy"])
def test_the_truth_passes(health: Health, number: int) -> None:
    trial, made = generated(health, number)
    clock, instant, stragglers, report = right_answers(trial, made)
    assert clock_failures(made.truth, clock, instant) == []
    assert straggler_failures(trial.straggler, stragglers) == []
    assert ledger_failures(made.truth, report, is_whole=True) == []


@pytest.mark.parametrize("lie", [12, -12, 10**6])
def test_offsets_outside_their_interval_are_seen(lie: int) -> None:
    trial, made = generated("sick", 0)
    clock, instant, _, _ = right_answers(trial, made)
    clock["ranks"][-1]["offset_ns"] += lie
    (failure,) = clock_failures(made.truth, clock, instant)
    assert failure.startswith(f"rank {trial.cluster.ranks - 1} is off by")
    clock["ranks"][-1]["offset_ns"] = None
    assert clock_failures(made.truth, clock, instant) != []


def test_the_true_offset_is_what_the_stamps_show() -> None:
    """Far from the start as well, where drift has added up."""
    _, made = generated("healthy", 1)
    for true_time in (0, made.truth.ranks[0].wall, 3_600 * 10**9):
        for reference in made.traces:
            shown = reference.stamp(true_time)
            for trace in made.traces:
                found = true_offset(reference.clock, trace.clock, BASE_TIME + shown)
                assert abs(found - (shown - trace.stamp(true_time))) <= 2


@pytest.mark.parametrize(
    "lie",
    [
        lambda rows: rows.clear(),
        lambda rows: rows[0].update(rank=rows[0]["rank"] + 1),
        lambda rows: rows.insert(0, {"rank": rows[0]["rank"] + 1, "cause": rows[0]["cause"]}),
        lambda rows: rows[0]["cause"].update(line="idle.sync"),
        lambda rows: rows[0]["cause"].update(name="other"),
    ],
    ids=["nobody", "another", "another first", "wrong line", "wrong name"],
)
def test_wrong_stragglers_are_seen(lie: Callable[[list[Json]], Any]) -> None:
    for number in range(6):
        trial, made = generated("sick", number)
        _, _, stragglers, _ = right_answers(trial, made)
        lie(stragglers)
        assert straggler_failures(trial.straggler, stragglers) != []
    assert straggler_failures(None, [{"rank": 0}]) != []


def test_wrong_ledgers_are_seen() -> None:
    trial, made = generated("sick", 0)
    for moved, is_whole, wrong in ((0.05, True, True), (0.05, False, False), (0.01, True, False)):
        _, _, _, report = right_answers(trial, made)
        for row in report["ranks"]:
            row["lines"]["comm.wait"] += round(moved * row["wall_ns"])
            row["lines"]["compute"] -= round(moved * row["wall_ns"])
        assert bool(ledger_failures(made.truth, report, is_whole)) == wrong
    report["ranks"][0]["lines"]["copy"] += 1
    assert ledger_failures(made.truth, report, is_whole=False) != []


def test_a_trial_asks_and_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = make_trial("sick", 0, most_ranks=TINY)
    made = trial.cluster.generate()
    clock, instant, stragglers, report = right_answers(trial, made)
    said: Json = {"clock": clock, "stragglers": stragglers}
    monkeypatch.setattr(cluster_trials, "answers", lambda _: (said, instant, report))
    outcome = run_trial("sick", 0, seed=0, most_ranks=TINY)
    assert outcome.failures == {}
    assert (outcome.name, outcome.shape, outcome.ranks) == (trial.name, trial.shape, trial.cluster.ranks)
    said["stragglers"] = []
    assert run_trial("sick", 0, seed=0, most_ranks=TINY).failures.keys() == {"straggler"}
    assert run_trial("sick", 0, seed=0, most_ranks=0).failures.keys() == {"error"}


@pytest.mark.parametrize("number", range(8))
def test_planted_stragglers_cost_what_they_must(number: int) -> None:
    trial, made = generated("sick", number)
    (straggler,) = made.truth.stragglers
    healthy_wall = made.truth.wall - straggler.cost
    assert straggler.cost / healthy_wall == pytest.approx(trial.effect)
    assert trial.effect >= LEAST_EFFECT
    assert trial.straggler is not None
    assert trial.straggler.steps is None


@pytest.mark.parametrize("number", range(8))
def test_planted_stragglers_show_their_cause(number: int) -> None:
    """Beside the ranks of the same stage and communication aside, no line exceeds by more than that of the cause."""
    trial, made = generated("sick", number)
    assert trial.straggler is not None
    place = trial.cluster.topology.places
    own = made.truth.ranks[trial.straggler.rank]
    peers = [r.lines for r in made.truth.ranks if r is not own and place[r.rank].stage == place[own.rank].stage]
    lines, _ = EXPECTED[trial.straggler.cause]
    excess = {line: ns - median(peer[line] for peer in peers) for line, ns in own.lines.items() if "comm." not in line}
    assert sum(excess.pop(line) for line in lines) > max(0.9 * LEAST_EFFECT * own.wall, *excess.values())


def test_a_stall_that_the_queue_hides_is_not_seen() -> None:
    """Late before the first kernel, then ahead of the device: it costs, but its own ledger shows nothing."""
    late = Straggler(1, "late_data", delay=300_000)
    cluster = SyntheticCluster(ranks=2, model=Model(layers=6), stragglers=(late,))
    assert cluster.generate().truth.stragglers[0].cost > 0
    assert not is_seen(cluster, simulate(cluster))
    worse = replace(cluster, stragglers=(replace(late, delay=5_000_000),))
    assert is_seen(worse, simulate(worse))


def test_trials_are_their_numbers_and_vary() -> None:
    trials = [make_trial("healthy", number) for number in range(40)]
    assert [make_trial("healthy", number) for number in range(3)] == trials[:3]
    clusters = [trial.cluster for trial in trials]
    assert {trial.shape for trial in trials} == set(SHAPES)
    assert {trial.host_names for trial in trials} == {cluster.record_seq for cluster in clusters} == {True, False}
    assert {trial.loses_records for trial in trials} == {True, False}
    assert min(cluster.ranks for cluster in clusters) < 8
    assert 100 < max(cluster.ranks for cluster in clusters) <= 256
    assert all(3 <= cluster.steps <= 6 for cluster in clusters)
    assert not any(trial.straggler for trial in trials)


@pytest.mark.parametrize("number", range(12))
def test_clusters_are_like_real_ones(number: int) -> None:
    """Communication takes its share of a step, bubbles aside, and there are not too many events."""
    trial, made = generated("healthy", number)
    transfers = sum(collective.transfer * len(collective.members) for collective in made.truth.collectives)
    compute = made.truth.lines["compute"]
    assert 0.03 < transfers / compute < 0.6
    assert sum(sum(rank.event_counts.values()) for rank in made.truth.ranks) <= 1.1 * MOST_EVENTS
    assert len(trial.cluster.clocks) == trial.cluster.hosts


def test_bounds() -> None:
    def outcomes(count: int, health: Health, *failed: str) -> list[Outcome]:
        return [Outcome("", health, failures={check: ["wrong"] for check in failed}) for _ in range(count)]

    right = outcomes(99, "sick") + outcomes(99, "healthy")
    assert broken_bounds(right) == []
    assert broken_bounds(right + outcomes(1, "sick", "straggler") + outcomes(1, "healthy", "straggler")) == []
    assert len(broken_bounds(right + outcomes(2, "sick", "straggler"))) == 1
    assert len(broken_bounds(right + outcomes(2, "healthy", "straggler"))) == 1
    for check in ("clock", "ledger", "error"):
        assert len(broken_bounds(right + outcomes(1, "healthy", check))) == 1


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    log = tmp_path / "trials.jsonl"
    assert known_outcomes(log) == {}
    first = Outcome("1/sick/0", "sick", failures={"clock": ["wrong"]})
    log.write_text("\n" + json.dumps(asdict(first)) + "\n" + json.dumps(asdict(first))[:40])
    assert known_outcomes(log) == {"1/sick/0": first}
