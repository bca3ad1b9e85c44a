"""Alerts of examples/prometheus, as Prometheus itself judges them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.live.real_prometheus import ask, needs_prometheus, prometheus, served, wait_for

from lostflops.cli.groups import GROUPS
from lostflops.live.metrics import METRICS
from made_jobs import MS, MadeJob

EXAMPLES: Final = Path(__file__).parents[2] / "examples/prometheus"
RULES: Final = EXAMPLES / "lostflops-rules.yml"
ALERTS: Final = [rule for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"] if "alert" in rule]
MINUTE: Final = 4
"""Samples per minute: one every 15 s."""
LONG: Final = 120 * MINUTE


def test_rules_ask_only_for_metrics_that_are_written() -> None:
    asked = set(re.findall(r"\blostflops_\w+", RULES.read_text()))
    assert asked <= {metric.name for metric in METRICS}
    assert len(ALERTS) >= 8


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_each_alert_has_a_summary_a_description_and_a_command_to_run_next(alert: dict[str, Any]) -> None:
    assert set(alert["annotations"]) == {"summary", "description", "next"}
    program, verb, run, *_ = alert["annotations"]["next"].split()
    assert (program, run) == ("lostflops", "RUN")
    assert verb in {verb for verbs in GROUPS.values() for verb in verbs}
    assert alert["labels"]["severity"] in ("page", "ticket", "info")
    lines = RULES.read_text().splitlines()
    assert lines[lines.index(f"      - alert: {alert['alert']}") - 1].startswith("      # "), "a reason for its limits"


@needs_prometheus
def test_promtool_finds_no_fault() -> None:
    for kind, name in (("rules", RULES.name), ("config", "prometheus.yml")):
        subprocess.run(["promtool", "check", kind, name], cwd=EXAMPLES, check=True, capture_output=True)


HEALTHY: Final = {
    "lostflops_job_ended": f"0x{LONG}",
    "lostflops_job_stalled": f"0x{LONG}",
    "lostflops_last_report_timestamp_seconds": f"0+15x{LONG}",
    "lostflops_attempt_start_timestamp_seconds": f"0x{LONG}",
    "lostflops_job_step_seconds": f"0.11 0.1 0.1 0.1 0.12 0.1 3.0 0.1x{LONG}",
    "lostflops_job_median_step_seconds": f"0.1x{LONG}",
    "lostflops_dropped_records_total": f"0x{LONG}",
    'lostflops_anomalies_total{kind="data"}': f"0x{LONG}",
    'lostflops_rank_missing{rank="1"}': f"0x{LONG}",
    'lostflops_rank_missing{rank="2"}': f"0x{LONG}",
    'lostflops_rank_blocking{rank="1"}': f"0x{LONG}",
    'lostflops_enqueue_lateness_seconds{rank="1"}': f"0x{LONG}",
    'lostflops_enqueue_lateness_seconds{rank="2"}': f"0.004x{LONG}",
    'lostflops_step_seconds{rank="1"}': f"0.1x{LONG}",
    'lostflops_step_seconds{rank="2"}': f"0.1x{LONG}",
    'lostflops_step_data_seconds{rank="1"}': f"0.001x{LONG}",
    'lostflops_step_data_seconds{rank="2"}': f"0.015x{LONG}",
    'lostflops_peak_memory_bytes{rank="1"}': f"72000000000x{LONG}",
    'lostflops_device_memory_bytes{rank="1"}': f"80000000000x{LONG}",
    'lostflops_collector_level{rank="1"}': f"0x{LONG}",
}
"""Two hours of a job without a fault: rank 2 is 4% late, waits 15% for data, and rank 1's device is 90% full."""


def becomes(before: str, after: str, minute: int = 60) -> str:
    return f"{before}x{minute * MINUTE - 1} {after}x{LONG - minute * MINUTE}"


@dataclass(frozen=True)
class Case:
    """A job that is healthy but for `faults`, and the alerts that fire after so many minutes: `Name` or `Name rank`."""

    faults: dict[str, str]
    fires: dict[int, set[str]] = field(default_factory=dict)


STALLED: Final = {"lostflops_job_stalled": becomes("0", "1")}
ENDED: Final = {"lostflops_job_ended": becomes("0", "1")}
DEAD: Final = {"lostflops_last_report_timestamp_seconds": f"0+15x{60 * MINUTE - 1} {60 * 60}x{LONG - 60 * MINUTE}"}
WORSE: Final = {
    'lostflops_enqueue_lateness_seconds{rank="2"}': becomes("0.004", "0.006", 10),
    'lostflops_step_data_seconds{rank="1"}': becomes("0.001", "0.006", 10),
    'lostflops_peak_memory_bytes{rank="1"}': f"74000000000x{LONG}",
    'lostflops_collector_level{rank="1"}': f"1x{LONG}",
    'lostflops_rank_missing{rank="2"}': f"1x{LONG}",
}
ALL_OF_THESE: Final = {
    *("LostflopsRankLate 2", "LostflopsDataStarvation", "LostflopsMemoryNearlyFull 1"),
    *("LostflopsCollectorRecordsLess", "LostflopsRankMissing 2"),
}
CASES: Final = {
    "healthy": Case({}, {minute: set() for minute in (0, 1, 5, 20, 60, 75, 90, 119)}),
    "stalled": Case(STALLED, {59: set(), 61: set(), 63: {"LostflopsJobStalled"}, 90: {"LostflopsJobStalled"}}),
    "a short stall": Case({"lostflops_job_stalled": f"0x239 1x5 0x{LONG}"}, {61: set(), 63: set()}),
    "killed": Case(DEAD, {64: set(), 67: {"LostflopsNoReports"}, 90: {"LostflopsNoReports"}}),
    "killed in a stall": Case(STALLED | DEAD, {63: {"LostflopsJobStalled"}, 67: {"LostflopsNoReports"}}),
    "ended": Case(ENDED | DEAD | WORSE, {59: ALL_OF_THESE, 61: set(), 67: set()}),
    "everything worse": Case(WORSE, {0: {"LostflopsCollectorRecordsLess"}, 40: ALL_OF_THESE}),
    "slower": Case(
        {"lostflops_job_step_seconds": becomes("0.1", "0.13", 80)},
        {79: set(), 88: set(), 100: {"LostflopsStepTimeUp"}},
    ),
    "a little slower": Case({"lostflops_job_step_seconds": becomes("0.1", "0.115", 80)}, {100: set()}),
    "long checkpoints": Case(
        {"lostflops_job_step_seconds": f"0.1x{80 * MINUTE} " + f"{'0.1 ' * 6} 30 30 30 " * 20}, {100: set()}
    ),
    "slower after a restart": Case(
        {
            "lostflops_job_step_seconds": becomes("0.1", "0.13", 80),
            "lostflops_attempt_start_timestamp_seconds": becomes("0", "4800", 80),
        },
        {100: set()},
    ),
    "one restart": Case({"lostflops_attempt_start_timestamp_seconds": becomes("0", "3600")}, {61: set(), 90: set()}),
    "two restarts": Case(
        {"lostflops_attempt_start_timestamp_seconds": f"0x239 3600x19 3900x{LONG}"},
        {64: set(), 66: {"LostflopsRestarts"}, 90: {"LostflopsRestarts"}},
    ),
    "lost records": Case(
        {"lostflops_dropped_records_total": becomes("0", "7")}, {59: set(), 61: {"LostflopsRecordsLost"}, 75: set()}
    ),
    "data of one rank alone": Case(  # the other's collector is over its budget and records only step boundaries
        {
            'lostflops_step_data_seconds{rank="1"}': f"0.015x{LONG}",
            'lostflops_step_data_seconds{rank="2"}': f"_x{LONG}",
        },
        {40: {"LostflopsDataStarvation"}},
    ),
    "a stall that is over": Case({'lostflops_anomalies_total{kind="stall"}': becomes("0", "1")}, {61: set()}),
    "an anomaly": Case(
        {'lostflops_anomalies_total{kind="data"}': becomes("0", "1")},
        {59: set(), 61: {"LostflopsAnomaly"}, 80: set()},
    ),
}


def series(name: str, case: Case) -> Iterator[dict[str, str]]:
    for metric, values in (HEALTHY | case.faults).items():
        bare, _, own = metric.partition("{")
        host = ',host="n0"' if "rank=" in own else ""
        yield {
            "series": f'{bare}{{instance="{name}",job="l"{host}{"," + own if own else "}"}',
            "values": values,
        }


def expectations(name: str, case: Case) -> Iterator[dict[str, Any]]:
    for minute, fires in case.fires.items():
        parts = [fired.partition(" ") for fired in fires]
        labels = [f'alertname="{alert}"' + (f', rank="{rank}"' if rank else "") for alert, _, rank in parts]
        yield {
            "expr": f'count by (alertname, rank) (ALERTS{{alertstate="firing", instance="{name}"}})',
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f"{{{label}}}", "value": 1} for label in labels],
        }


@needs_prometheus
def test_promtool_fires_each_alert_on_its_fault_and_on_no_other(tmp_path: Path) -> None:
    fired = {fired.split()[0] for case in CASES.values() for fires in case.fires.values() for fired in fires}
    assert fired == {alert["alert"] for alert in ALERTS}
    test = {
        "interval": "15s",
        "input_series": [one for name, case in CASES.items() for one in series(name, case)],
        "promql_expr_test": [one for name, case in CASES.items() for one in expectations(name, case)],
    }
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}))
    command = ["promtool", "test", "rules", tmp_path / "tests.yml"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


FASTER: Final = 60
"""A minute of the rules is a second of this test."""
MS_OF: Final = {"s": 1000, "m": 60_000, "h": 3_600_000}


def quicker(rules: str) -> str:
    """Return rules whose durations are shorter by `FASTER`."""

    def shorten(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) * MS_OF[match[3]] // FASTER}ms"

    rules = re.sub(r"(\[|offset |for: |interval: )(\d+)([smh])\b", shorten, rules)
    return re.sub(r"(timestamp_seconds [<>] )(\d+)", lambda match: f"{match[1]}{int(match[2]) / FASTER}", rules)


def test_all_durations_of_the_rules_become_quicker() -> None:
    expressions = "".join(line for line in quicker(RULES.read_text()).splitlines() if not line.strip().startswith("#"))
    durations = re.findall(r"(?:\[|offset |for: |interval: |timestamp_seconds [<>] )(\S+)", expressions)
    assert len(durations) > 20
    assert not [duration for duration in durations if re.match(r"\d+[smh]\b", duration)]


@dataclass
class Watched:
    """A job that goes on step by step, and `lostflops watch` on it."""

    job: MadeJob
    faults: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    step: int = 0

    @property
    def run(self) -> Path:
        return self.job.folder.parent

    @property
    def metrics(self) -> Path:
        return self.run / "metrics.prom"

    def page(self) -> str:
        return self.metrics.read_text() if self.metrics.exists() else ""

    def begin(self) -> None:
        for rank in range(self.job.world_size):
            self.job.append(rank, [self.job.session(rank, device_memory=10_000_000_000)])

    def go_on(self) -> None:
        """Append a step, or what is still reported."""
        if self.fault == "killed" and self.step > 20:
            return
        is_stuck = self.fault == "stalled" and self.step > 20
        for rank in range(self.job.world_size):
            if not is_stuck:
                self.job.append(rank, [self.job.step(rank, self.step, **self.faults)])
            reached = 21 if is_stuck and rank != 1 else 20 if is_stuck else self.step
            self.job.append(rank, [self.job.enqueued(rank, reached)])
        self.step += 1


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[dict[str, Watched]]:
    """Jobs with and without faults, each with its `lostflops watch`, after the first steps."""

    def made(name: str, faults: dict[str, Any] | None = None, **settings: Any) -> Watched:
        job = MadeJob(tmp_path / name / "capture", world_size=4, begin=time.time_ns(), **settings)
        watched = Watched(job, faults or {}, name)
        watched.begin()
        return watched

    starved = {"data": 15 * MS, "peak_memory": 9_500_000_000}
    found = {
        "healthy": made("healthy", {"data": MS}),
        "stalled": made("stalled", {"data": MS}),
        "killed": made("killed", {"data": MS}),
        "wasteful": made("wasteful", starved, late_ms={2: 20}),
    }
    options = ["--interval", "0.2", "--wait", "3", "--json", "--prometheus"]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "lostflops", "watch", job.run, *options, job.metrics],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for job in found.values()
    ]
    yield found
    for process in started:
        process.terminate()
    assert [process.communicate(timeout=20)[1] for process in started] == [b""] * len(started)


def firing(address: str) -> dict[str, set[str]]:
    """Return the alerts that fire, by job: `Name`, or `Name rank`."""
    found: dict[str, set[str]] = {}
    for alert in ask(address, "alerts")["alerts"]:
        labels = alert["labels"]
        if alert["state"] == "firing":
            found.setdefault(labels["job"], set()).add(f"{labels['alertname']} {labels.get('rank', '')}".strip())
    return found


EXPECTED: Final = {
    "stalled": {"LostflopsJobStalled"},
    "killed": {"LostflopsNoReports"},
    "wasteful": {"LostflopsDataStarvation", "LostflopsRankLate 2"}
    | {f"LostflopsMemoryNearlyFull {rank}" for rank in range(4)},
}


@needs_prometheus
def test_a_real_prometheus_fires_for_watched_jobs_and_not_for_a_healthy_one(
    jobs: dict[str, Watched], tmp_path: Path
) -> None:
    (tmp_path / RULES.name).write_text(quicker(RULES.read_text()))
    with ExitStack() as stack:
        port = stack.enter_context(served({f"/{name}": job.page for name, job in jobs.items()}))
        place = {"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        scrapes = [{"job_name": name, "metrics_path": f"/{name}", **place} for name in jobs]
        timing = {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"}
        config = {"global": timing, "rule_files": [RULES.name], "scrape_configs": scrapes}
        address = stack.enter_context(prometheus(config, tmp_path))
        seen: dict[str, set[str]] = {}

        def is_all_there() -> bool:
            for job in jobs.values():
                job.go_on()
            for name, alerts in firing(address).items():
                seen.setdefault(name, set()).update(alerts)
            return all(EXPECTED[name] <= seen.get(name, set()) for name in EXPECTED)

        wait_for(is_all_there, 60, "all alerts that are expected")
        seen["killed"].discard("LostflopsJobStalled")  # it may fire first: a job that was killed finishes no steps
        assert seen == EXPECTED
        (stall,) = [one for one in ask(address, "alerts")["alerts"] if one["labels"]["job"] == "stalled"]
        assert stall["annotations"]["description"] == (
            "No rank has finished a step for more than 2 minutes. Others wait in a collective for rank 1 on node0."
        )
