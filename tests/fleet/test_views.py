"""Answers about jobs, hosts and runs: the same figures as the answer about the whole fleet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from lostflops.core.errors import UsageError
from lostflops.fleet.answer import answer_fleet
from lostflops.fleet.choose import FleetScope, Judgements
from lostflops.fleet.host_answers import answer_host, answer_hosts
from lostflops.fleet.job_answers import SPARK, answer_job, answer_jobs
from lostflops.fleet.job_comparison import compare_jobs
from lostflops.fleet.regressions import JobStatus
from lostflops.fleet.run_answer import answer_run, find_address
from lostflops.fleet.summary import HostSummary, RunSummary
from lostflops.show.report.fragments import Drawing, draw_result
from lostflops.testing.fleet import FleetPlan, GeneratedFleet
from tests.fleet.made_fleets import generate_summaries
from tests.fleet.made_runs import HOUR, make_finding, make_summary
from tests.fleet.test_answer import Summaries

PLAN = FleetPlan(runs=160, jobs=8, hosts=64, slow_hosts=0.05, slower=(0.08, 0.12), changed=0, regressions=0.5)


@pytest.fixture(scope="module")
def generated() -> Summaries:
    return Summaries(list(generate_summaries(PLAN)))


def of(*made: RunSummary) -> Any:
    return Summaries(made)


def rows(result: Any, name: str) -> list[dict[str, Any]]:
    return next(block.to_json() for block in (*result.blocks, *result.more) if block.name == name)


def same(found: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """Sums of floats end in other digits if threads add them in another order."""
    return len(found) == len(other) and all(one == pytest.approx(two) for one, two in zip(found, other, strict=True))


def jobs_of(result: Any) -> set[str]:
    return {row["job"] for row in rows(result, "jobs")}


def test_a_scope_chooses_by_each_of_its_parts() -> None:
    fleet = of(
        make_summary(0),
        make_summary(1, name="llama_7b", labels={"team": "vision"}),
        make_summary(9, name="gpt", labels={"team": "speech"}),
    )
    for scope, runs in [
        ({}, 3),
        ({"job": "llama"}, 1),
        ({"job": "llama*"}, 2),
        ({"job": "*LAMA_*"}, 1),
        ({"job": "*lama%"}, 0),
        ({"job": "llama*", "is_pattern": False}, 0),
        ({"host": "node9"}, 1),
        ({"week": date(2023, 11, 19)}, 2),
        ({"week": date(2023, 11, 20)}, 1),
        ({"run": "run1"}, 1),
        ({"labels": {"team": "speech"}}, 1),
        ({"status": JobStatus.UNKNOWN}, 3),
        ({"status": JobStatus.SLOWER}, 0),
    ]:
        if runs:
            assert answer_fleet(fleet, FleetScope(**scope)).to_json()["runs"] == runs, scope
        else:
            with pytest.raises(UsageError, match="no run matches"):
                answer_fleet(fleet, FleetScope(**scope))


def test_an_empty_fleet_says_how_to_add_runs() -> None:
    with pytest.raises(UsageError, match="has no runs yet: add some with lostflops fleet add memory RUN"):
        answer_jobs(of(), FleetScope())


def test_what_a_job_shows_alone_is_what_the_fleet_shows_of_it(generated: Summaries) -> None:
    """Its change, its slow hosts and its hours: a job alone has too little to estimate noise and hosts from."""
    whole = answer_fleet(generated, FleetScope())
    changes = {row["job"]: row for row in rows(whole, "changes")}
    slow = {row["host"]: row for row in rows(whole, "slow_hosts")}
    planted = {one.job for one in GeneratedFleet(PLAN).truth.regressions}
    assert planted
    assert planted <= set(changes)
    for job in jobs_of(whole):
        alone = answer_job(generated, FleetScope(job=job))
        assert [row for row in rows(alone, "changes") if row["is_now"]] == [
            row for name, row in changes.items() if name == job and row["is_now"]
        ]
        assert all(row == slow[row["host"]] for row in rows(alone, "slow_hosts"))
        verb = answer_fleet(generated, FleetScope(job=job))
        for table in ("hours", "fixes"):
            assert same(rows(alone, table), rows(verb, table))


def test_the_list_of_jobs_has_a_line_of_step_times_and_the_status(generated: Summaries) -> None:
    slower = rows(answer_jobs(generated, FleetScope(status=JobStatus.SLOWER)), "jobs")
    assert {row["job"] for row in slower} == {one.job for one in GeneratedFleet(PLAN).truth.regressions}
    found = rows(answer_jobs(generated, FleetScope()), "jobs")
    times = {row["job"]: row[SPARK] for row in found}
    naive: dict[str, list[float]] = {}
    for run in generate_summaries(PLAN):
        naive.setdefault(run.name, []).append(run.step_ns or 0)
    assert times == {name: values[-40:] for name, values in naive.items()}


def test_the_history_of_a_job() -> None:
    runs = [make_summary(n, step_ns=1e9 * (1.1 if n >= 6 else 1), commit=f"c{n // 6}") for n in range(12)]
    found = answer_job(of(*runs), FleetScope(job="llama"))
    assert found.verdict.startswith(
        "Job llama is 10% slower since 2023-11-20 (commit c1). Its 12 runs used 240 GPU-hou"
    )
    listed = rows(found, "runs")
    assert [row["run"] for row in listed] == [f"run{n}" for n in reversed(range(12))]
    assert listed[0]["step_ns"] == 1_100_000_000
    plot = next(block for block in found.blocks if block.name == "history")
    assert [mark.at for mark in plot.marks] == [runs[6].start]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([1e9] * 3, "has too few runs to see whether it became slower"),
        ([1e9] * 8, "is as fast as ever"),
        ([1e9] * 6 + [0.8e9] * 6, "is 20% faster since its newest change"),
    ],
)
def test_a_job_that_is_not_slower(steps: Sequence[float], words: str) -> None:
    runs = [make_summary(n, step_ns=step) for n, step in enumerate(steps)]
    assert answer_job(of(*runs), FleetScope(job="llama")).verdict.startswith(f"Job llama {words}")


def test_a_host_is_judged_by_all_runs(generated: Summaries) -> None:
    listed = rows(answer_hosts(generated, FleetScope()), "hosts")
    slow = {row["host"] for row in listed if row["is_slow"]}
    assert slow == {one.host for one in GeneratedFleet(PLAN).truth.slow_hosts}
    for row in [listed[0], listed[-1]]:
        host = answer_host(generated, FleetScope(host=row["host"]))
        assert rows(host, "hosts") == [row]
        assert ("is slow: its ranks need" in host.verdict) == row["is_slow"]
        assert {run["run"] for run in rows(host, "runs")} == {
            run.run for run in generate_summaries(PLAN) if row["host"] in {one.host for one in run.hosts}
        }


def test_hours_have_one_name_on_all_screens(generated: Summaries) -> None:
    slow = next(row["host"] for row in rows(answer_hosts(generated, FleetScope()), "hosts") if row["is_slow"])
    views = (
        answer_fleet(generated, FleetScope()),
        answer_hosts(generated, FleetScope()),
        answer_host(generated, FleetScope(host=slow)),
    )
    for view in views:
        assert " GPU-hours" in view.verdict
        assert "rank-hours" not in view.verdict


def test_a_host_without_another_cannot_be_compared() -> None:
    found = answer_host(of(make_summary(0)), FleetScope(host="node0"))
    assert found.verdict == (
        "Host node0 cannot be compared with others: in its 1 run there was no other host with the same work."
    )
    assert rows(found, "runs")[0]["cause"] == "comm.wait"


def test_two_jobs_by_numbers_that_a_reader_can_check() -> None:
    """Half of 16 hours compute in one, a quarter in the other; each life has 20."""
    lines = {"compute": 25, "comm.wait": 75}
    host = HostSummary(host="b", device="H100-SXM5", ranks=2, window_ns=100, lines=lines)
    slow = make_summary(1, name="gpt", step_ns=2e9, lines=lines, hosts=[host], findings=[make_finding("gc", 0.1)])
    found = compare_jobs(of(make_summary(0), slow), FleetScope(job="llama"), "gpt")
    assert found.verdict == (
        "A step of gpt takes 2.00x as long as a step of llama (2.00 s and 1.00 s). 40% of the hours of llama are "
        "compute, and 20% of those of gpt. They differ most in comm.wait: 40% of the hours of llama, 60% of gpt."
    )
    shares = {row["cause"]: (row["first"], row["second"], row["difference"]) for row in rows(found, "hours")}
    assert shares["compute"] == pytest.approx((0.4, 0.2, 0.2))
    assert [row["job"] for row in rows(found, "fixes")] == ["gpt"]


def test_a_run_and_its_place() -> None:
    fleet = of(make_summary(0, address="/runs/a b", findings=[make_finding("gc", 0.1)]), make_summary(1))
    found = answer_run(fleet, "run0")
    assert found.verdict.startswith("This run of job llama started on 2023-11-14 22:13 on 2 ranks of H100-SXM5.")
    assert found.next_command == "lostflops serve '/runs/a b'"
    assert sum(row["hours"] for row in rows(found, "hours")) == pytest.approx(20)
    assert find_address(fleet, "run1") == "/runs/1"
    assert find_address(fleet, "run2") is None
    with pytest.raises(UsageError, match="is not in the fleet"):
        answer_run(fleet, "run2")


def test_judgements_are_kept_by_labels_and_days(generated: Summaries) -> None:
    judged = Judgements()
    first = answer_fleet(generated, FleetScope(), judged=judged)
    part = FleetScope(labels={"team": next(generate_summaries(PLAN)).labels["team"]})
    for scope in (FleetScope(), part):
        again = answer_fleet(generated, scope, judged=judged)
        for table in ("changes", "slow_hosts"):
            assert same(rows(again, table), rows(answer_fleet(generated, scope), table))
    assert rows(first, "slow_hosts") != rows(answer_fleet(generated, part), "slow_hosts")


def test_runs_without_any_time_are_shown() -> None:
    bare = make_summary(0, total_ns=0, life={}, window_ns=0, lines={}, hosts=[], step_ns=None, mfu=None, steps=None)
    fleet = of(
        bare, make_summary(1, name="gpt", total_ns=HOUR, life={"unknown": HOUR}, window_ns=0, lines={}, hosts=[])
    )
    assert len(rows(answer_jobs(fleet, FleetScope()), "jobs")) == 2
    assert "too few runs" in answer_job(fleet, FleetScope(job="llama")).verdict
    assert compare_jobs(fleet, FleetScope(job="llama"), "gpt").verdict
    assert answer_hosts(fleet, FleetScope()).verdict.startswith("No host can be compared")
    assert answer_run(fleet, "run0").verdict


STRANGE: dict[str, dict[str, Any]] = {
    "no name": {"name": "", "run": "", "address": "", "labels": {"": ""}},
    "no device and no ranks": {"device": None, "ranks": 0},
    "before 1970 and after 2262": {"start": -(2**62), "stop": 2**62},
    "a step of no time": {"step_ns": 0.0},
    "a step of less than 1 ns": {"step_ns": 1e-9},
    "a step of years": {"step_ns": 1e18},
    "an error larger than the step": {"step_error": 100.0},
    "more than all FLOPs": {"mfu": 1e6},
    "less than no FLOPs": {"mfu": -1.0},
    "a life of one ns": {"life": {"training": 1}, "total_ns": 1},
    "a life of more than 64 bits": {"life": {"training": 2**70}, "total_ns": 2**70},
    "an unknown line": {"lines": {"": 1, "levitation": 99}},
    "a gain above one": {"findings": [make_finding("gc", 50.0)]},
    "a gain below zero": {"findings": [make_finding("gc", -50.0)]},
    "hosts without names": {
        "hosts": [HostSummary(host=None, device=None, ranks=0, window_ns=0, lines={}, slower=0.1)] * 2
    },
    "hosts of one name": {
        "hosts": [HostSummary(host="a", device=None, ranks=1, window_ns=0, lines={}, slower=0.1)] * 2
    },
    "hosts that take less than no time": {
        "hosts": [
            HostSummary(host="a", device="", ranks=1, window_ns=0, lines={}, slower=-5.0, slower_error=-1.0),
            HostSummary(host="b", device="", ranks=1, window_ns=0, lines={}, slower=1e3, slower_error=0.0),
        ]
    },
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=list(STRANGE))
def test_a_strange_row_is_drawn_in_every_view(strange: dict[str, Any]) -> None:
    row = make_summary(20, **strange)
    fleet, judged = Summaries([*(make_summary(n) for n in range(8)), row]), Judgements()
    job = FleetScope(job=row.name or "llama", is_pattern=False)
    results = [
        answer_fleet(fleet, FleetScope(), judged=judged),
        answer_jobs(fleet, FleetScope(), judged),
        answer_job(fleet, job, judged),
        compare_jobs(fleet, job, "llama", judged),
        answer_hosts(fleet, FleetScope(), judged),
        *(answer_host(fleet, FleetScope(host=host.host), judged) for host in row.hosts if host.host),
        *([answer_run(fleet, row.run)] if row.run else []),
    ]
    for result in results:
        html = draw_result(result, Drawing(width=390, sparks={"jobs": (SPARK, "trend")}))
        assert html.count("<section") == html.count("</section>") == len(result.blocks)
