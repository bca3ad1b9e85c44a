"""The run that the benchmark of ranks makes: collectives end at one true time, and its truth is the truth."""

import importlib.util
import sys
from collections import defaultdict
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lostflops.explain.analyze.report import report
from lostflops.store.run import Run
from tests.report_checks import check_report

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RANKS = 80


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("big") / "run"
    cluster = load("big_cluster")
    truth = cluster.write_run(folder, cluster.Shape(RANKS))
    with Run.open(folder) as run:
        yield asdict(truth), run


def true_time(truth: dict[str, Any], rank: int, shown: int) -> Fraction:
    host = rank // 8
    return (shown - truth["base_time"] - truth["offset"][host]) / (1 + Fraction(truth["drift_ppb"][host], 10**9))


def test_collectives_wait_for_all_and_end_at_once(made) -> None:
    truth, run = made
    meetings = defaultdict(list)
    some = run.sql("select group_id, seq, rank, start, stop from collectives where seq % 5 = 0").fetchall()
    for group, seq, rank, start, stop in some:
        meetings[group, seq].append((true_time(truth, rank, start), true_time(truth, rank, stop)))
    assert len(meetings) == 10 * 150 + 8 * 50
    for members in meetings.values():
        ends = [stop for _, stop in members]
        assert max(ends) - min(ends) <= 2
        assert max(start for start, _ in members) <= min(ends) - 15_000 + 2


def test_the_size_is_as_said_and_little_is_lost(made) -> None:
    _, run = made
    ((ranks, hosts),) = run.sql("select count(*), count(distinct host) from ranks").fetchall()
    assert (ranks, hosts) == (RANKS, RANKS // 8)
    ((collectives,),) = run.sql("select count(*) from collectives").fetchall()
    ((events,),) = run.sql("select count(*) from events").fetchall()
    assert 0.99 < collectives / (RANKS * 5 * 200) < 0.999
    assert 3.0 < events / collectives < 3.4
    ((told,),) = run.sql("select sum(count) from stats where what = 'kernels_without_launch'").fetchall()
    ((without,),) = run.sql("select count(*) from events where kind in ('kernel', 'comm') and step is null").fetchall()
    assert told == without > 0


def test_rows_refer_to_each_other(made) -> None:
    _, run = made
    ((wrong,),) = run.sql(
        "select count(*) from collectives c left join events e using (rank, event) "
        "where e.kind is distinct from 'comm' or e.start <> c.start or e.lane <> c.lane "
        "or e.step is distinct from c.step or e.start + e.dur <> c.stop"
    ).fetchall()
    assert wrong == 0
    ((early,),) = run.sql(
        "select count(*) from events k join events l using (rank, correlation) "
        "where k.kind in ('kernel', 'comm') and l.kind = 'runtime' and (k.start < l.start or k.step <> l.step)"
    ).fetchall()
    assert early == 0
    ((outside,),) = run.sql(
        "select count(*) from steps s join events e using (rank, step) where e.kind in ('kernel', 'comm') "
        "and (e.start < s.device_start or e.start + e.dur > s.device_stop)"
    ).fetchall()
    assert outside == 0


def test_the_planted_ranks_stand_out(made) -> None:
    truth, run = made
    answer = report(run).to_json()
    check_report(answer)
    lines = {row["rank"]: row["lines"] for row in answer["ranks"]}
    assert max(lines, key=lambda rank: lines[rank]["compute"]) == truth["slow"]
    assert max(lines, key=lambda rank: lines[rank]["idle.data"]) == truth["late"]
    assert min(lines, key=lambda rank: lines[rank]["comm.transfer"]) in (truth["slow"], truth["late"])


def test_wrong_answers_are_seen(made) -> None:
    truth, _ = made
    judge = load("ranks").mistakes
    instant = truth["base_time"] + truth["offset"][0]  # true time 0, where nothing has drifted yet
    rows = [
        {"rank": r, "offset_ns": truth["offset"][0] - truth["offset"][r // 8], "uncertainty_ns": 0} for r in range(80)
    ]
    causes = (("slow", "compute", "slow_kernels"), ("late", "idle.data", "late_data"))
    stragglers = [{"rank": truth[key], "cause": {"line": line, "name": name}} for key, line, name in causes]
    answer = {"clock": {"reference": 0, "ranks": rows}, "stragglers": stragglers}
    assert judge(answer, truth, instant) == []
    assert len(judge(answer | {"stragglers": stragglers[:1]}, truth, instant)) == 1
    assert judge(answer, truth, instant + 10**9) != []
    rows[79]["offset_ns"] += 2
    assert len(judge(answer, truth, instant)) == 1
