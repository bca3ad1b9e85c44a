"""The answer of a fleet, by sums that a reader can do by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

import duckdb
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.job.life import LIFE
from lostflops.account.ledger.lines import LINES
from lostflops.core.errors import UsageError
from lostflops.fleet.answer import answer_fleet
from lostflops.fleet.choose import FleetScope
from lostflops.fleet.rows import fill_table
from lostflops.fleet.summary import HostSummary, RunSummary
from tests.fleet.made_runs import HOUR, make_finding, make_summary


class Summaries:
    """A fleet in memory."""

    place = "memory"

    def __init__(self, made: Sequence[RunSummary]) -> None:
        self._made = made
        self.notes: list[str] = []

    @contextmanager
    def table(self, columns: Sequence[str], since: int | None = None) -> Any:
        with duckdb.connect() as connection:
            fill_table(connection, "runs", self._made, columns)
            yield connection


def ask(*made: RunSummary, by: str = "", **scope: Any) -> dict[str, Any]:
    found: dict[str, Any] = answer_fleet(Summaries(made), FleetScope(**({"labels": {}} | scope)), by).to_json()
    return found


def hours_of(found: dict[str, Any]) -> dict[str, float]:
    return {row["cause"]: row["hours"] for row in found["hours"]}


def test_hours_by_cause() -> None:
    """Sixteen hours of training are half compute, half waiting; the other four are known by themselves."""
    assert hours_of(ask(make_summary())) == {"compute": 8.0, "comm.wait": 8.0, "restarting": 3.0, "starting": 1.0}


def test_hours_say_how_much_the_profiler_may_have_moved() -> None:
    """Profiled steps took 100, normal ones 80: any line may hold the other 20, so 30 to 50 of 80 are compute."""
    found = ask(make_summary(normal_ns=80))
    ends = {row["cause"]: (row["low"], row["hours"], row["high"]) for row in found["hours"]}
    assert ends["compute"] == pytest.approx((6.0, 8.0, 10.0))
    assert ends["restarting"] == (3.0, 3.0, 3.0)
    assert any("`low` and `high`" in note for note in found["notes"])


@pytest.mark.parametrize("normal", [None, 0])
def test_hours_without_timed_steps_have_no_range(normal: int | None) -> None:
    """Nothing shows how much longer profiled steps take."""
    rows = ask(make_summary(0), make_summary(1, normal_ns=normal))["hours"]
    ends = {row["cause"]: (row["low"], row["high"]) for row in rows}
    assert ends["compute"] == (None, None)
    assert ends["starting"] == (2.0, 2.0)


def test_hosts_have_only_the_hours_of_their_ranks() -> None:
    """Two of the four ranks were recorded, so half of the sixteen hours in steps belong to their host."""
    (row,) = ask(make_summary(ranks=4), by="host")["groups"]
    assert (row["name"], row["hours"]) == ("node0", 8.0)


def test_a_run_without_detail_only_trains() -> None:
    found = ask(make_summary(window_ns=0, lines={}, hosts=[]))
    assert hours_of(found) == {"training": 16.0, "restarting": 3.0, "starting": 1.0}
    assert any("recorded no step in detail" in note for note in found["notes"])


def test_compute_is_unknown_without_detail() -> None:
    blind = {"window_ns": 0, "lines": {}, "hosts": []}
    assert ask(make_summary(**blind))["verdict"].startswith("1 run of 1 job used 20 GPU-hours: compute is unknown.")
    found = ask(make_summary(0), make_summary(1, name="gpt", **blind), by="job")
    assert found["verdict"].startswith("2 runs of 2 jobs used 40 GPU-hours: at least 20% is compute.")
    assert {row["name"]: row["compute"] for row in found["groups"]} == {"llama": 0.4, "gpt": None}


def test_hours_by_label() -> None:
    runs = [make_summary(0, labels={"team": "vision"}), make_summary(1, labels={"team": "vision"}), make_summary(2)]
    rows = ask(*runs, by="team")["groups"]
    assert [(row["name"], row["runs"], row["hours"]) for row in rows] == [("vision", 2, 40.0), ("(no label)", 1, 20.0)]
    assert [row["largest_loss"] for row in rows] == ["comm.wait"] * 2
    assert rows[0]["compute"] == pytest.approx(0.4)
    assert rows[0]["outside_steps"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("by", "names"),
    [("job", ["llama"]), ("device", ["H100-SXM5"]), ("host", ["node0", "node1"]), ("week", ["2023-11-13"])],
)
def test_hours_by_other_things(by: str, names: list[str]) -> None:
    rows = ask(make_summary(0), make_summary(1), by=by)["groups"]
    assert sorted(row["name"] for row in rows) == names
    assert sum(row["hours"] for row in rows) == pytest.approx(32.0 if by == "host" else 40.0)


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(UsageError, match="Known: cause, job, device, week, host, team"):
        ask(make_summary(labels={"team": "vision"}), by="user")


def test_a_label_called_like_another_choice_is_named_once() -> None:
    with pytest.raises(UsageError, match=r"Known: cause, job, device, week, host, team$"):
        ask(make_summary(labels={"job": "llama", "team": "vision"}), by="user")


def test_fixes_of_a_job_are_added_over_its_runs() -> None:
    """0.1 and 0.2 of 16 hours; what is suspected, or saves nothing, is no fix."""
    first = make_summary(0, findings=[make_finding("straggler", 0.1), make_finding("gc", 0.5, "suspected")])
    second = make_summary(1, findings=[make_finding("straggler", 0.2), make_finding("copies", None)])
    (fix,) = ask(first, second)["fixes"]
    assert (fix["job"], fix["cause"], fix["runs"], fix["run"]) == ("llama", "straggler", 2, "/runs/1")
    assert [fix[name] for name in ("hours", "hours_low", "hours_high")] == pytest.approx([4.8, 2.4, 7.2])


def test_two_findings_of_one_cause_in_a_run_count_once() -> None:
    made = [make_finding("straggler", 0.1, fix="fix rank 1"), make_finding("straggler", 0.2, fix="fix rank 2")]
    (fix,) = ask(make_summary(findings=made))["fixes"]
    assert fix["hours"] == pytest.approx(3.2)


def test_a_run_without_an_interval_leaves_none_for_its_job() -> None:
    """An interval of one run beside the hours of two would not even contain them."""
    first = make_summary(0, findings=[make_finding("straggler", 0.1)])
    second = make_summary(1, findings=[make_finding("straggler", 0.2, gain_low=None, gain_high=None)])
    (fix,) = ask(first, second)["fixes"]
    assert fix["hours"] == pytest.approx(4.8)
    assert (fix["hours_low"], fix["hours_high"]) == (None, None)


def test_the_place_of_a_job_among_its_peers() -> None:
    """Five jobs on one device: the third best reaches more than two of four others. One on another has no peers."""
    runs = [make_summary(n, name=f"job{n}", mfu=0.1 * n) for n in range(1, 6)]
    found = ask(*runs, make_summary(9, name="other", device="MI300X"))["jobs"]
    places = {row["job"]: row["better_than"] for row in found}
    assert places == {"job1": 0.0, "job2": 0.25, "job3": 0.5, "job4": 0.75, "job5": 1.0, "other": None}


def test_the_scope_is_job_label_and_day() -> None:
    runs = [make_summary(0), make_summary(1, labels={"team": "a"}), make_summary(2, name="gpt")]
    assert ask(*runs)["runs"] == 3
    assert ask(*runs, job="gpt")["runs"] == 1
    assert ask(*runs, labels={"team": "a"})["runs"] == 1
    assert ask(*runs, since=date(2023, 11, 15))["runs"] == 2
    with pytest.raises(UsageError, match="no run matches"):
        ask(*runs, job="none")


_NS = st.integers(0, 10**21)


@st.composite
def summaries(draw: st.DrawFn) -> list[RunSummary]:
    made = []
    for number in range(draw(st.integers(1, 5))):
        life = draw(st.dictionaries(st.sampled_from(sorted(LIFE)), _NS, max_size=5))
        lines = draw(st.dictionaries(st.sampled_from(LINES), st.integers(1, 10**12), max_size=5))
        sums = {"life": life, "total_ns": sum(life.values()), "lines": lines, "window_ns": sum(lines.values())}
        made.append(make_summary(number, hosts=[], **sums))
    return made


@given(summaries())
def test_hours_are_closed(made: list[RunSummary]) -> None:
    """Every hour of every rank is on exactly one line, as a naive sum puts it there."""
    found = hours_of(ask(*made))
    naive: Counter[str] = Counter()
    for run in made:
        trained = run.life.get("training", 0)
        naive.update({line: ns / HOUR for line, ns in run.life.items() if line != "training"})
        naive.update({line: trained * ns / run.window_ns / HOUR for line, ns in run.lines.items()})
        naive.update({"training": trained / HOUR} if not run.window_ns else {})
    assert sum(found.values()) == pytest.approx(sum(run.total_ns for run in made) / HOUR)
    assert {line: hours for line, hours in found.items() if hours} == pytest.approx(
        {line: hours for line, hours in naive.items() if hours}
    )


def test_json_is_small() -> None:
    """1,000 ranks on 125 hosts, with all lines of the ledger, leave at most 200 KB."""
    (host,) = make_summary().hosts
    lines = {line: 10**15 + number for number, line in enumerate(LINES)}
    hosts = [
        msgspec.structs.replace(
            host, host=f"node-{n:05}", ranks=8, lines=lines, window_ns=sum(lines.values()), slower=0.1
        )
        for n in range(125)
    ]
    assert len(msgspec.json.encode(make_summary(hosts=hosts))) < 200_000


ODD = st.none() | st.sampled_from([0.0, -1.0, -0.999, 1e-320, 1e-9, 0.5, 3.0, 1e9, 1e155, 1e308, -1e308])


@st.composite
def odd_fleets(draw: st.DrawFn) -> list[RunSummary]:
    """Runs whose measurements are possible as numbers, and nonsense."""
    made = []
    for number in range(draw(st.integers(1, 12))):
        hosts = [
            HostSummary(
                host=host, device="H100", ranks=1, window_ns=10, lines={"compute": 10},
                slower=draw(ODD), slower_error=draw(ODD),
            )
            for host in "abc"
        ]  # fmt: skip
        facts = {name: draw(ODD) for name in ("step_ns", "step_error", "mfu", "tokens_per_second")}
        made.append(make_summary(number, hosts=hosts, **facts))
    return made


@given(odd_fleets())
def test_numbers_that_make_no_sense_are_no_error_and_no_warning(made: list[RunSummary]) -> None:
    found = ask(*made)
    assert found["runs"] == len(made)
    assert hours_of(found)["compute"] == pytest.approx(8.0 * len(made))


def test_hosts_say_how_much_time_belongs_to_none() -> None:
    """Of 40 hours, 16 are in steps of a run that names its hosts."""
    blind = make_summary(1, window_ns=0, lines={}, hosts=[])
    (note,) = [note for note in ask(make_summary(0), blind, by="host")["notes"] if "host" in note]
    assert note == (
        "By host: only time in steps of runs that were recorded in detail belongs to a host. 60% of all GPU-hours, "
        "outside steps or without detail, belong to none."
    )
    assert not any("By host" in note for note in ask(make_summary(0), by="job")["notes"])
