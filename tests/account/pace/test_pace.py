"""How fast a job went and who comes last, by what was recorded all along: hand-made jobs with known truth."""

import random
from pathlib import Path

import pytest

from lostflops.account.pace.answers import (
    attempts,
    enqueues,
    list_steps,
    notes,
    phases,
    report_recording,
    slowest,
    went,
)
from lostflops.account.pace.data_waits import find_data_waits
from lostflops.account.pace.lateness import find_habits, lateness, leads
from lostflops.account.pace.timings import choose_pace, paces
from lostflops.ingest import ingest
from lostflops.store.run import Run
from made_captures import BASE, MS, collectives, end, frames, session, step, write, write_window
from memory_run import MemoryRun

OWN = MS // 10
EARLY = (1 * MS, 2 * MS, 4 * MS, 1 * MS, 2 * MS)
LATE = (1 * MS, 2 * MS, 3 * MS, 1 * MS, 3 * MS)
LONG = (1 * MS, 2 * MS, 4 * MS, 1 * MS, 12 * MS)
PROFILED = (3 * MS, 6 * MS, 12 * MS, 3 * MS, 6 * MS)
FIRST = (50 * MS, 20 * MS, 20 * MS, 5 * MS, 5 * MS)


def records(rank, *, behind=lambda number: 0, start=0, known=True):
    """12 steps of 10 ms: the first takes 100 ms, in the second something is compiled, step 5 takes 20 ms and the last
    two are profiled and take 30 ms. Each enqueues a collective 5 ms in, so much `behind`."""
    made, now = [], start
    for number in range(12):
        own = {0: FIRST, 5: LONG, 10: PROFILED, 11: PROFILED}.get(number, LATE if rank else EARLY)
        batch = {"samples": 8, "tokens": 512} if known else {}
        marks = {"compiled": number == 1, "profiled": number > 9}
        made.append(step(number, now, own, own=OWN if number < 10 else 0, **batch, **marks))
        made.append(collectives((number, now + 5 * MS + behind(number))))
        now += sum(own)
    return [*made, end(now + 1)]


def job(folder: Path, *behind, hosts=("node0", "node0"), device="cpu", **more) -> Path:
    """A run of one rank for each `behind`."""
    for rank, own in enumerate(behind):
        facts = {"device": device, "device_name": "NVIDIA H100" if device == "cuda" else None}
        told = session(rank, len(behind), host=hosts[rank], **facts)
        write(folder / "run" / "capture", rank, frames(rank, f"s{rank}", [told, *records(rank, behind=own, **more)]))
    ingest([folder / "run" / "capture"], folder / "run", workers=1)
    return folder / "run"


def never(_number):
    return 0


def always(ns):
    return lambda _number: ns


@pytest.fixture
def opened(tmp_path):
    """Makes a job and opens its run."""
    made = []

    def make(*behind, **more):
        made.append(Run.open(job(tmp_path, *behind, **more)))
        return made[-1]

    yield make
    for run in made:
        run.close()


def test_the_pace_of_settled_steps(opened):
    run = opened(never, always(2 * MS))
    (pace,) = paces(run)
    assert (pace.attempt, pace.steps, pace.settled, pace.ranks) == (0, 12, 8, 2)
    assert (pace.p50, pace.p95) == (10 * MS, pytest.approx(16.5 * MS))
    # 7 steps of 10 ms and one of 20 ms, each with 8 samples on both ranks
    assert pace.samples_per_second == pytest.approx(16 * 8 / 0.09)
    assert pace.tokens_per_second == pytest.approx(1024 * 8 / 0.09)
    assert pace.own_share == pytest.approx(0.8 / 90)
    assert (pace.profiled_steps, pace.profiled_ratio) == (2, pytest.approx(3.0))
    # Of both ranks: 16 x 1, 16 x 2, 7 x 4 + 7 x 3 + 2 x 4, 16 x 1, 7 x 2 + 7 x 3 + 2 x 12
    assert pace.phases == tuple(ns * MS for ns in (16, 32, 57, 16, 59))
    assert went(pace) == (
        "A normal step takes 10.0 ms (median of 8; 95% take up to 16.5 ms): outside 32.8%, backward 31.7%, forward "
        "17.8%, data 8.9%, optimizer 8.9%."
    )
    assert [row[0] for row in phases(pace).rows] == ["data", "forward", "backward", "optimizer", "outside"]
    assert sum(row[1] for row in phases(pace).rows) == pytest.approx(180 * MS / 16, abs=3)


def test_what_the_collector_takes_now_and_then_counts(tmp_path):
    """Reading the ring takes 4 ms of every fourth step, and nothing of the others."""
    made = [step(n, n * 10 * MS, EARLY, own=4 * MS * (n % 4 == 0)) for n in range(41)]
    path = write(tmp_path, 0, frames(0, "a", [session(0, 1), *made]))
    ingest([path], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        assert choose_pace(paces(run)).own_share == pytest.approx(0.1)


def test_steps_one_by_one(opened):
    run = opened(never, never)
    pace = choose_pace(paces(run))
    table = list_steps(run, pace).to_json()
    assert [row["mark"] for row in table] == ["first", "compiled", *[""] * 3, "slow", *[""] * 4, "profiled", "profiled"]
    assert table[2]["time_ns"] == 10 * MS
    assert table[2]["backward_ns"] == 3.5 * MS
    assert table[2]["shares"] == {"data": 0.1, "forward": 0.2, "backward": 0.35, "optimizer": 0.1, "outside": 0.25}
    assert list_steps(run, pace, [1], [3]).rows[0][:9] == (3, 10 * MS, 1, 10 * MS, *LATE)
    assert list_steps(run, pace, [], [99]).rows == ()


def test_many_steps_are_not_all_listed(tmp_path):
    own = [step(n, n * 10 * MS, EARLY if n != 7 else LONG) for n in range(500)]
    path = write(tmp_path, 0, frames(0, "a", [session(0, 1), *own]))
    ingest([path], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        table = list_steps(run, choose_pace(paces(run)))
    numbers = [row[0] for row in table.rows]
    assert 7 in numbers
    assert numbers[-20:] == list(range(480, 500))
    assert len(numbers) + table.left_out == 500
    assert len(numbers) <= 40


def lates(tmp_path, behind, steps=40, **more):
    """Lateness in a job of so many settled steps of 10 ms."""
    for rank, own in enumerate(behind):
        made = [step(n, n * 10 * MS, EARLY) for n in range(steps + 1)]
        told = session(rank, len(behind), host=more.get("hosts", ["a"] * 9)[rank], **more.get("facts", {}))
        ring = collectives(*((n, n * 10 * MS + 5 * MS + own(n)) for n in range(steps + 1)), ranks=range(len(behind)))
        write(tmp_path / "capture", rank, frames(rank, f"s{rank}", [told, *made, ring, end(9)]))
    ingest([tmp_path / "capture"], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        pace = choose_pace(paces(run))
        found = lateness(run, pace)
        return found, slowest(found, pace), list(notes(run, [pace], pace, found))


def test_a_rank_that_is_late_in_every_step_is_named(tmp_path):
    found, says, _ = lates(tmp_path, [never, never, always(2 * MS), never])
    assert found.slowest is not None
    assert (found.slowest.rank, found.slowest.steps_last, found.slowest.steps) == (2, 40, 40)
    assert (found.slowest.last, found.slowest.collectives, found.slowest.lateness) == (40, 40, 2 * MS)
    assert says == (
        "Rank 2 is the slowest: it enqueues its collectives last in 40 of 40 steps, 2.00 ms after the first "
        "rank (median, 20.0% of a step)."
    )


def test_of_a_long_job_the_newest_steps_are_looked_at(tmp_path, monkeypatch):
    """Rank 0 is late in the first 100 steps, rank 1 in the last 60; rings held 320 entries."""
    monkeypatch.setattr("lostflops.account.pace.lateness._MOST", 100)
    monkeypatch.setattr("lostflops.account.pace.lateness._FEWEST_STEPS", 40)
    behind = [lambda n: 2 * MS * (n <= 100), lambda n: 2 * MS * (n > 100)]
    found, _, _ = lates(tmp_path, behind, steps=160)
    assert found.slowest is not None
    assert (found.slowest.rank, found.slowest.steps_last, found.slowest.steps) == (1, 50, 50)


def test_few_steps_prove_nothing(tmp_path):
    found, says, _ = lates(tmp_path, [never, always(2 * MS)], steps=6)
    assert found.ranks[0].p_value == pytest.approx(2 / 2**6)
    assert found.slowest is None
    assert says.startswith("No rank is the slowest")


def test_a_habit_and_what_it_costs(opened):
    """In all 8 settled steps of 10 ms rank 1 comes 2 ms after the other, which is what a step would be shorter by."""
    run = opened(never, always(2 * MS))
    habits = find_habits(run)
    assert (habits[1].last, habits[1].steps, habits[1].last_in_halves) == (8, 8, (1.0, 1.0))
    assert (habits[1].lateness, habits[1].is_certain, habits[0].is_late) == (pytest.approx(0.2), True, False)
    assert leads(run, [1]).tolist() == [2 * MS] * 8
    assert leads(run, [0]).tolist() == [0] * 8


def test_hosts_of_accelerators_have_no_habits(opened):
    assert find_habits(opened(never, always(2 * MS), device="cuda")) == {}


def test_lateness_below_3_percent_of_a_step_names_nobody(tmp_path):
    found, says, _ = lates(tmp_path, [never, always(MS // 4)])
    assert found.slowest is None
    assert found.ranks[0].lateness == MS // 4
    assert says.startswith("No rank is the slowest")


def test_ranks_that_take_turns_are_not_named(tmp_path):
    found, _, _ = lates(tmp_path, [lambda n: 2 * MS * (n % 2), lambda n: 2 * MS * ((n + 1) % 2)])
    assert found.slowest is None
    assert [(one.steps_last, one.lateness) for one in found.ranks] == [(20, MS), (20, MS)]


def test_a_rank_that_is_disturbed_for_a_while_is_not_named(tmp_path):
    """Each of three ranks is late for a stretch, the last for the longest: beyond chance, if steps were independent."""
    stretches = [range(1, 11), range(11, 22), range(22, 41)]
    behind = [lambda n, own=own: 2 * MS * (n in own) + n % 3 for own in stretches]
    found, says, _ = lates(tmp_path, [*behind, never])
    assert (found.ranks[0].rank, found.ranks[0].steps_last) == (2, 19)
    assert found.ranks[0].p_value < 0.01
    assert found.slowest is None
    assert says.startswith("No rank is the slowest")


def test_ranks_that_come_at_once_have_no_last(tmp_path):
    found, _, _ = lates(tmp_path, [never, never])
    assert [(one.last, one.steps_last) for one in found.ranks] == [(0, 0), (0, 0)]
    assert found.slowest is None


def test_clocks_of_two_hosts_that_nothing_ties(tmp_path):
    found, says, _ = lates(tmp_path, [never, always(2 * MS)], hosts=["a", "b"])
    assert (found.ranks, found.slowest) == ((), None)
    assert says == ("The slowest rank is unknown: the ranks are on several hosts, whose clocks are not aligned.")


def two_hosts(behind, method="collectives"):
    """A run of two hosts with 41 steps of 100 ms; the second clock is an hour ahead, as table `clocks` knows."""
    ahead, long = 3_600_000 * MS, 100 * MS
    timings, ring = [], []
    for rank in range(2):
        for number in range(41):
            start = BASE + number * long + rank * ahead
            own = {"rank": rank, "attempt": 0, "step": number, "start": start, "stop": start + long}
            timings.append(own | {"data": 0, "forward": 0, "backward": 0, "optimizer": 0, "outside": long})
            met = {"rank": rank, "attempt": 0, "group_id": "0@0-1", "seq": number, "is_p2p": False}
            ring.append(met | {"created": start + 5 * MS + rank * behind})
    known = {"uncertainty": 1 * MS, "drift": 0.0, "instant": BASE + 20 * long}
    clocks = [
        {"rank": 0, "method": "reference", "correction": 0, **known},
        {"rank": 1, "method": method, "correction": -ahead, **known},
    ]
    ranks = [{"rank": rank, "host": f"h{rank}", "events": 0} for rank in range(2)]
    return MemoryRun(ranks=ranks, timings=timings, enqueues=ring, clocks=clocks)


@pytest.mark.parametrize(("behind", "named"), [(20 * MS, 1), (10 * MS, None)])
def test_clocks_that_collectives_tie(behind, named):
    """They are known to 1 ms, and may have drifted apart by 12 ms at the edge of what is looked at."""
    with two_hosts(behind) as run:
        found = lateness(run, choose_pace(paces(run)))
    assert (found.ranks[0].rank, found.ranks[0].lateness, found.resolution) == (1, behind, 13 * MS)
    assert (found.slowest.rank if found.slowest else None) == named


def test_clocks_that_contradict_each_other():
    with two_hosts(20 * MS, method="contradictory") as run:
        assert lateness(run, choose_pace(paces(run))).why_not.startswith("the ranks are on several hosts")


def test_on_accelerators_lateness_is_that_of_hosts(tmp_path):
    facts = {"device": "cuda", "device_name": "NVIDIA H100"}
    found, says, told = lates(tmp_path, [never, always(2 * MS)], facts=facts)
    assert found.slowest is not None
    assert told == ["Lateness is that of hosts, which run ahead of their devices: it is not the wait of a device."]
    assert "wait" not in says


def test_one_rank_cannot_be_compared(tmp_path):
    _, says, _ = lates(tmp_path, [never])
    assert says == ("The slowest rank is unknown: fewer than two ranks recorded when they enqueued collectives.")


def test_no_samples_no_rate(opened):
    (pace,) = paces(opened(never, never, known=False))
    assert (pace.samples_per_second, pace.tokens_per_second) == (None, None)


def test_attempts_each_have_their_pace(tmp_path):
    folder = tmp_path / "run" / "capture"
    later = 10_000 * MS
    for rank in range(2):
        first = frames(rank, f"a{rank}", [session(rank), *records(rank)[:8]])
        again = session(rank, wall=later, restart=1)
        write(folder, rank, first, frames(rank, f"b{rank}", [again, *records(rank, start=later)]))
    ingest([folder], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = paces(run)
        pace = choose_pace(found)
        table = attempts(run, found).to_json()
        figures = report_recording(run, found, pace).to_json()
        assert next(notes(run, found, pace)) == (
            "2 attempts have steps; attempt 1 is shown, the newest with a normal step."
        )
    assert [(row["attempt"], row["ranks"], row["steps"], row["settled_steps"], row["ended"]) for row in table] == [
        (0, 2, 4, 2, False),
        (1, 2, 12, 8, True),
    ]
    assert [row["step_p50_ns"] for row in table] == [10 * MS, 10 * MS]
    assert (figures["attempts"], figures["attempt"], figures["steps"], figures["settled_steps"]) == (2, 1, 16, 8)


@pytest.mark.parametrize(("traced", "said"), [(0, True), (1, False)])
def test_a_trace_of_another_attempt_is_said_to_be_one(tmp_path, traced, said):
    """Both attempts run; only one of them has a window."""
    folder, later = tmp_path / "run" / "capture", 10_000 * MS
    again = session(0, 1, wall=later, restart=1)
    first = frames(0, "a", [session(0, 1), *records(0)])
    write(folder, 0, first, frames(0, "b", [again, *records(0, start=later)]))
    window = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 1, "tid": 1, "dur": 9, "args": {}}
    write_window(folder, 0, 0, [window | {"ts": (BASE + traced * later + 150 * MS) / 1000}], 1)
    ingest([folder], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        found = list(notes(run, paces(run), choose_pace(paces(run))))
    told = "The trace is of attempt 0, so its steps are not those of attempt 1."
    assert (told in found) == said


def test_an_attempt_without_a_settled_step_is_shown_if_there_is_no_other(tmp_path):
    path = write(tmp_path, 0, frames(0, "a", [session(0, 1), step(0, 0, EARLY)]))
    ingest([path], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        pace = choose_pace(paces(run))
        assert (pace.p50, pace.phases) == (None, tuple(map(float, EARLY)))
        assert went(pace).startswith("1 step recorded, but no normal step")
        assert lateness(run, pace).why_not


def test_no_timings(tmp_path):
    path = write(tmp_path, 0, frames(0, "a", [session(0, 1), end(5)]))
    ingest([path], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        assert paces(run) == []
        assert choose_pace([]) is None


def test_the_table_of_enqueues_shows_so_many(tmp_path):
    found, _, _ = lates(tmp_path, [never, always(2 * MS), never])
    assert enqueues(found, 2).most_shown == 2
    assert len(enqueues(found).rows) == 3


def unseen(folder: Path, numbers):
    """Ten steps of 10 ms, 2 ms of each forward; the forward passes of `numbers` were not seen."""
    made = [session(0, 1)]
    for number in range(10):
        hidden = {"forward": None} if number in numbers else {}
        made.append(step(number, number * 10 * MS, (1 * MS, 2 * MS, 4 * MS, 1 * MS, 2 * MS), **hidden))
    write(folder / "capture", 0, frames(0, "a", [*made, end(100 * MS)]))
    ingest([folder / "capture"], folder / "run")
    return folder / "run"


def test_steps_before_the_first_forward_pass_that_was_seen_are_not_settled(tmp_path):
    with Run.open(unseen(tmp_path, {0, 1, 2})) as run:
        (pace,) = paces(run)
        assert pace.settled == 7
        assert [pace.share(phase) for phase in ("data", "forward", "backward", "optimizer", "outside")] == [
            0.1,
            0.2,
            0.4,
            0.1,
            0.2,
        ]
        rows = list_steps(run, pace).to_json()
        assert [(row["forward_ns"], row["outside_ns"]) for row in rows[:4]] == [(None, None)] * 3 + [(2 * MS, 2 * MS)]


def test_a_forward_pass_that_is_never_seen_is_not_called_none(tmp_path):
    with Run.open(unseen(tmp_path, set(range(10)))) as run:
        (pace,) = paces(run)
        assert pace.settled == 9
        assert (pace.share("data"), pace.share("forward"), pace.share("outside")) == (0.1, None, None)
        assert "forward" not in went(pace)
        assert [row["share"] for row in phases(pace).to_json()] == [0.1, None, 0.4, 0.1, None]


def test_steps_count_after_the_collector_stopped_to_time_phases(tmp_path):
    with Run.open(unseen(tmp_path, {0, 6, 7, 8, 9})) as run:
        (pace,) = paces(run)
        assert pace.settled == 9
        assert [pace.share(phase) for phase in ("data", "forward", "backward")] == [0.1, 0.2, 0.4]
        assert pace.timed == 5


def waits_next_to(traced, waits, steps=240, ranks=4):
    """Ranks that wait for data so long, in ms, in steps of 400 ms; some steps are in the window."""
    timings = [
        {
            "rank": rank, "attempt": 0, "step": number, "start": 400 * MS * number, "stop": 400 * MS * (number + 1),
            "data": round(waits(rank, number) * MS), "forward": MS, "compiled": False, "profiled": number in traced,
        }
        for number in range(steps) for rank in range(ranks)
    ]  # fmt: skip
    shown = [{"rank": rank, "step": number} for number in traced for rank in range(ranks)]
    run = MemoryRun(timings=timings, steps=shown)
    return find_data_waits(run, choose_pace(paces(run)))


def starves(rank, number, start, stop=10**9):
    """Rank 1 waits 300 ms in every second step, as with two loader workers; all wait a few ms."""
    return 5 + number % 3 + 300 * (rank == 1 and start <= number < stop and number % 2)


def test_a_rank_that_waits_for_data_next_to_the_window():
    traced = range(200, 208)
    found = waits_next_to(traced, lambda rank, number: starves(rank, number, 150))
    assert found == {1: pytest.approx(150 * MS)}
    assert waits_next_to(traced, lambda rank, number: starves(rank, number, 0, 150)) == {}, "it is over"
    assert waits_next_to(traced, lambda rank, number: starves(rank, number, 0, 190)) == {}, "it ended before the window"
    assert waits_next_to(traced, lambda rank, number: starves(1, number, 0)) == {}, "all ranks wait"
    assert waits_next_to(traced, lambda rank, number: 5 + 2 * (rank == 1)) == {}, "too little"
    assert waits_next_to(range(4, 12), lambda rank, number: starves(rank, number, 0), steps=20) == {}, "few steps"


def test_waits_for_data_that_come_and_go_blame_nobody():
    for seed in range(100):
        chance = random.Random(seed)
        waits = {(rank, number): chance.expovariate(1 / 20) for rank in range(4) for number in range(240)}
        assert waits_next_to(range(200, 208), lambda rank, number, waits=waits: waits[rank, number]) == {}, seed


def test_of_several_windows_the_newest_decides():
    traced = [*range(20, 28), *range(200, 208)]
    assert waits_next_to(traced, lambda rank, number: starves(rank, number, 150)) == {1: pytest.approx(150 * MS)}
    assert waits_next_to(traced, lambda rank, number: starves(rank, number, 0, 180)) == {}


def habits_of(since, rank=1, ends=10**9, steps=160):
    """Steps of 400 ms; one of three ranks is 150 ms late from some step on, and others wait for it."""
    timings, enqueues = [], []
    now = 0
    for number in range(steps):
        late = 150 * MS * (since <= number < ends)
        for one in range(3):
            times = {"start": now, "stop": now + 400 * MS + late}
            timings.append({"rank": one, "attempt": 0, "step": number, **times, "data": 0, "forward": MS})
            created = now + 100 * MS + late * (one == rank) + one * 1000 + (number + one) % 3 * 10_000
            enqueues.append(
                {"rank": one, "attempt": 0, "group_id": "0", "seq": number, "created": created, "is_p2p": False}
            )
        now += 400 * MS + late
    run = MemoryRun(
        timings=timings,
        enqueues=enqueues,
        ranks=[{"rank": one, "host": "a"} for one in range(3)],
        attempts=[{"rank": one, "attempt": 0, "start": 0, "stop": now} for one in range(3)],
        steps=[{"rank": one, "step": 150, "start": timings[-30]["start"]} for one in range(3)],
    )
    return find_habits(run)


def test_if_a_job_became_slower_the_steps_since_then_show_habits():
    found = habits_of(110)
    assert abs(found[1].since - 110) <= 2
    assert found[1].is_certain, "it is the last in a third of all steps, and in all of the last ones"
    assert not found[0].is_late
    assert not found[2].is_late


def test_if_a_slow_phase_is_over_all_steps_show_habits():
    found = habits_of(60, ends=110)
    assert found[1].since is None
    assert not found[1].is_late
