"""Causes that facts of the collector name: checkpoints, evaluation, debug modes, threads, shared cores, page faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.explain.advise.rules.made_loops import Loop, case_of, claims, findings

from lostflops.core.errors import UnknownCost
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.rules import (
    RULES,
    allocation_churn,
    background_thread,
    checkpoint,
    contention,
    debug_mode,
    evaluation,
)
from lostflops.explain.advise.signs.machine import HostMachine
from lostflops.explain.advise.signs.pressure import Pressure, find_cpu_starved_ranks, pressure
from made_captures import MS

NEW = (
    allocation_churn.RULE,
    background_thread.RULE,
    checkpoint.RULE,
    contention.RULE,
    debug_mode.RULE,
    evaluation.RULE,
)


def found(made: Loop, folder: Path, rule: Rule) -> list[Claim]:
    with case_of(made.write(folder)) as case:
        return claims(case, rule)


def causes(made: Loop, folder: Path) -> list[str]:
    with case_of(made.write(folder)) as case:
        return [one.cause for one in findings(case, *RULES)]


def every_fifth(column: str, ranks: tuple[int, ...] = (0,), ms: int = 200) -> Loop:
    """Steps of 100 ms; each fifth has so many ms more, which these ranks spend and others wait for."""

    def more(rank: int, number: int) -> dict[str, Any]:
        return {"saving": 0, "evaluating": 0, column: ms * MS * (number % 5 == 0 and rank in ranks)}

    return Loop(steps=40, profiled=36, python=lambda rank, number: 40 + ms * (number % 5 == 0), more=more)


@pytest.mark.parametrize(("column", "rule"), [("saving", checkpoint.RULE), ("evaluating", evaluation.RULE)])
def test_a_rank_that_others_wait_for(tmp_path: Path, column: str, rule: Rule) -> None:
    """Of the settled steps 1 to 35 seven have 200 ms more: 1.4 of 4.9 s."""
    made = every_fifth(column)
    (one,) = found(made, tmp_path, rule)
    assert one.saving is not None
    assert one.saving.value == pytest.approx(1.4 / 4.9)
    assert one.saving.low == pytest.approx(one.saving.value)  # all seven are alike
    assert one.ranks == (0,)
    assert "every 5 steps" in one.what
    assert "rank 0 while the others wait" in one.what
    assert one.evidence[0].steps == (5, 10, 15, 20, 25, 30, 35)
    assert causes(made, tmp_path / "again")[:1] == [rule.cause]


@pytest.mark.parametrize(("column", "rule"), [("saving", checkpoint.RULE), ("evaluating", evaluation.RULE)])
def test_all_ranks_that_do_it(tmp_path: Path, column: str, rule: Rule) -> None:
    (one,) = found(every_fifth(column, ranks=(0, 1)), tmp_path, rule)
    assert one.ranks == ()
    assert "all ranks" in one.what


def test_slow_steps_that_nothing_was_saved_in(tmp_path: Path) -> None:
    made = every_fifth("saving", ranks=())
    assert found(made, tmp_path, checkpoint.RULE) == []
    assert "warmup" in causes(made, tmp_path / "again")


def test_a_save_while_the_other_ranks_compute_gains_what_steps_are_longer_by(tmp_path: Path) -> None:
    """The save takes 60 ms, and the step is longer by 20 ms only."""
    made = Loop(
        steps=40,
        profiled=36,
        python=lambda rank, number: 40 + 20 * (number % 2 == 0),
        more=lambda rank, number: {"saving": 60 * MS * (rank == 0 and number % 2 == 0)},
    )
    (one,) = found(made, tmp_path, checkpoint.RULE)
    assert one.saving is not None
    # 17 of the settled steps 1 to 35
    assert one.saving.value == pytest.approx(17 * 20 / (35 * 100 + 17 * 20))
    assert one.saving.high == pytest.approx(17 * 60 / (35 * 100 + 17 * 20))


def test_forward_passes_without_gradients_in_every_step_are_training(tmp_path: Path) -> None:
    made = Loop(more=lambda rank, number: {"evaluating": 30 * MS})
    assert found(made, tmp_path, evaluation.RULE) == []


def threads(share: float) -> Callable[[int], dict[str, Any]]:
    told = {"name": "metrics", "cpu": int(share * 1000 * MS), "places": [["export metrics.py:9", 4]]}
    return lambda rank: {"threads": {"time": 1000 * MS, "threads": [told]}}


def test_a_thread_that_holds_the_lock(tmp_path: Path) -> None:
    """The training thread is on its core for 65 of 100 ms and waits 5 ms for one: 30 ms are the lock's.

    The other thread may be what it waits 5 ms for."""
    made = Loop(facts=threads(0.8), more=lambda rank, number: {"cpu": 65 * MS, "queued": 5 * MS})
    (one,) = found(made, tmp_path, background_thread.RULE)
    assert one.saving is not None
    assert one.saving.value == pytest.approx(0.35, abs=0.01)
    assert not one.suspected
    assert "waits 30.0% of its time" in one.what
    assert "'metrics'" in one.what
    assert "export metrics.py:9" in one.what
    assert {line for _, line in one.taken} == {"idle.python"}
    assert causes(made, tmp_path / "again")[:1] == ["background_thread"]


@pytest.mark.parametrize(
    ("cpu", "queued", "doubt"),
    [(88, 0, ""), (65, 0, "something else")],
    ids=["explained", "off its core for longer than the thread runs"],
)
def test_a_thread_that_uses_little_of_a_core(tmp_path: Path, cpu: int, queued: int, doubt: str) -> None:
    """It uses 14% of a core, so it can hold the lock that long, and while it waits for a core itself."""
    made = Loop(
        facts=threads(0.14),
        compute=lambda rank, number: 60,
        more=lambda rank, number: {"cpu": cpu * MS, "queued": queued * MS},
    )
    (one,) = found(made, tmp_path, background_thread.RULE)
    assert doubt in one.suspected
    assert bool(one.suspected) == bool(doubt)
    assert one.saving is not None
    assert one.saving.value == pytest.approx(min(1 - (cpu + queued) / 100, 0.14), abs=0.01)


@pytest.mark.parametrize(("busy", "cpu"), [(0.8, 100), (0.02, 60)])
def test_a_thread_that_holds_nobody_up(tmp_path: Path, busy: float, cpu: int) -> None:
    """It uses a core, but the training thread never waits; or the training thread waits, but for no thread."""
    made = Loop(facts=threads(busy), more=lambda rank, number: {"cpu": cpu * MS, "queued": 0})
    assert found(made, tmp_path, background_thread.RULE) == []


def test_anomaly_mode(tmp_path: Path) -> None:
    """Checks take half of the 60 ms that ops take in steps of 100 ms. The profiler slows nothing down here."""
    made = Loop(
        ops=("aten::mm", "aten::isnan", "aten::mm", "aten::_is_any_true"),
        facts=lambda rank: {"debug_modes": {"anomaly": "check_nan", "frame_ns": 0}},
        more=lambda rank, number: {"cpu": 100 * MS, "queued": 0},
    )
    (one,) = found(made, tmp_path, debug_mode.RULE)
    assert one.saving is not None
    assert one.saving.value == pytest.approx(0.3, abs=0.01)
    assert causes(made, tmp_path / "again")[:1] == ["debug_mode"]


def test_checks_of_the_program_are_no_debug_mode(tmp_path: Path) -> None:
    made = Loop(ops=("aten::mm", "aten::isnan"), facts=lambda rank: {"debug_modes": {"deterministic": "algorithms"}})
    assert found(made, tmp_path, debug_mode.RULE) == []


def test_a_mode_whose_cost_the_run_cannot_show_is_suspected(tmp_path: Path) -> None:
    (one,) = found(Loop(facts=lambda rank: {"debug_modes": {"python_tracing": True}}), tmp_path, debug_mode.RULE)
    assert one.suspected


@pytest.mark.parametrize("is_cpu", [True, False])
def test_blocking_launches_are_a_cause_with_devices_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cpu: bool
) -> None:
    monkeypatch.setattr(debug_mode, "machine", lambda case: HostMachine(is_cpu, None))
    claimed = found(Loop(facts=lambda rank: {"debug_modes": {"launch_blocking": True}}), tmp_path, debug_mode.RULE)
    assert [one.what.split()[0] for one in claimed] == ([] if is_cpu else ["CUDA_LAUNCH_BLOCKING=1"])


def waits(of_rank_1: int) -> Loop:
    """Rank 0 waits 2 of 100 ms for a core in each step, rank 1 so many, and computes that much longer."""

    def more(rank: int, number: int) -> dict[str, Any]:
        return {"queued": (of_rank_1 if rank == 1 else 2) * MS, "cpu": 60 * MS}

    return Loop(compute=lambda rank, number: 60, more=more)


def test_a_rank_that_shares_its_core(tmp_path: Path) -> None:
    with case_of(waits(42).write(tmp_path)) as case:
        assert find_cpu_starved_ranks(case) == {1: pytest.approx(0.4)}  # rank 0 waits 2 ms for as much CPU time
        seen = pressure(case)
        assert seen is not None
        assert set(seen.of(1).tolist()) == {0.42}
        (one,) = claims(case, contention.RULE)
        assert one.ranks == (1,)
        assert one.changes == ("straggler=1",)  # no collective shows how much later it comes
        assert "straggler" in one.instead_of


@pytest.mark.parametrize(
    ("lead_ms", "on_thread", "share"),
    [(50.0, True, 0.4), (10.0, True, 0.1), (0.0, True, 0.0), (50.0, False, None)],
    ids=["late by more", "late by less", "never late", "accelerator"],
)
def test_a_core_saves_what_it_is_waited_for_but_no_more_than_the_rank_is_late(
    lead_ms: float, on_thread: bool, share: float | None
) -> None:
    """Of a step of 100 ms, it waits 40 ms longer than its peers."""
    normal = SimpleNamespace(location=SimpleNamespace(value=100 * MS))
    case: Any = SimpleNamespace(
        baseline=SimpleNamespace(normal=normal, noise=0.0), total=SimpleNamespace(on_thread={1} if on_thread else set())
    )
    late = np.where(np.arange(30) % 10 == 0, lead_ms * MS + MS, lead_ms * MS)
    gain = contention._measure_saving(case, 1, np.full(30, 0.4), late)
    assert (gain.value if gain else None) == (pytest.approx(share, abs=0.01) if share is not None else None)


def test_a_rank_that_computes_more_on_a_busy_host_is_not_squeezed(tmp_path: Path) -> None:
    """Both wait as long as they compute."""

    def more(rank: int, number: int) -> dict[str, Any]:
        return {"queued": (45 if rank else 15) * MS, "cpu": (45 if rank else 15) * MS}

    assert found(Loop(more=more), tmp_path, contention.RULE) == []


def test_ranks_that_wait_alike_share_no_core_of_one(tmp_path: Path) -> None:
    assert found(waits(4), tmp_path, contention.RULE) == []


def test_pages_that_are_mapped_in_every_step(tmp_path: Path) -> None:
    made = Loop(more=lambda rank, number: {"system": 20 * MS, "faults": 40_000})
    (one,) = found(made, tmp_path, allocation_churn.RULE)
    assert one.saving is not None
    assert one.saving.value == pytest.approx(0.2)
    assert "164 MB" in one.evidence[0].what
    assert "allocation_churn" in causes(made, tmp_path / "again")  # the loop also runs Python for 40 ms


def test_pages_of_memory_that_is_kept_are_no_churn(tmp_path: Path) -> None:
    """A step maps 164 MB, and keeps 150 MB of them."""
    made = Loop(
        more=lambda rank, number: {"system": 20 * MS, "faults": 40_000, "peak_memory": 10**9 + number * 150_000_000}
    )
    assert found(made, tmp_path, allocation_churn.RULE) == []


def test_pages_on_a_core_that_others_use_as_well(tmp_path: Path) -> None:
    """Half of what the thread does is system time, and it has its core for 40 of 100 ms: half of the step is lost."""
    made = Loop(
        more=lambda rank, number: {"cpu": 40 * MS, "queued": 60 * MS, "system": 20 * MS, "faults": 40_000},
    )
    (one,) = found(made, tmp_path, allocation_churn.RULE)
    assert one.saving is not None
    assert one.saving.value == pytest.approx(0.5)


@pytest.mark.parametrize(("system", "faults"), [(20, 100), (1, 40_000)])
def test_system_time_without_faults_and_faults_without_system_time(tmp_path: Path, system: int, faults: int) -> None:
    made = Loop(more=lambda rank, number: {"system": system * MS, "faults": faults})
    assert found(made, tmp_path, allocation_churn.RULE) == []


@pytest.mark.parametrize("rule", NEW, ids=lambda rule: rule.cause)
@pytest.mark.few(2)
def test_a_healthy_job(tmp_path: Path, rule: Rule) -> None:
    def more(rank: int, number: int) -> dict[str, Any]:
        zeros = dict.fromkeys(("saving", "evaluating", "system", "faults", "preempted"), 0)
        return {"cpu": 98 * MS, "queued": (1 + rank) * MS // 2, **zeros}

    assert found(Loop(more=more), tmp_path, rule) == []


@pytest.mark.parametrize("rule", [evaluation.RULE, contention.RULE, allocation_churn.RULE], ids=lambda rule: rule.cause)
def test_a_run_of_an_older_collector(tmp_path: Path, rule: Rule) -> None:
    with pytest.raises(UnknownCost, match="this version of Lostflops"):
        found(Loop(), tmp_path, rule)


@pytest.mark.parametrize(
    ("world", "evaluating", "expected"),
    [(64, 1, "63/64"), (16, 2, "most"), (1, 1, "most")],
    ids=["one", "two", "alone"],
)
def test_splitting_an_evaluation_saves_what_other_ranks_take_over(world: int, evaluating: int, expected: str) -> None:
    case: Any = SimpleNamespace(run=SimpleNamespace(rows=lambda _: [(world,)]))
    assert evaluation._split_share(case, evaluating) == expected


def test_steps_in_which_no_peer_was_measured_are_left_open() -> None:
    nan = np.nan
    waits = np.array([[0.1, nan, nan], [0.1, 0.2, nan], [0.3, 0.1, 0.1]])
    found = Pressure((0, 1, 2), (7, 8, 9), waits, np.where(np.isnan(waits), nan, 0.5))
    assert found.beyond(0).tolist() == [pytest.approx(nan, nan_ok=True), pytest.approx(-0.1), pytest.approx(0.2)]
