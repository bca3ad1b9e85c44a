"""Which rank is late by the timed steps of a job: hand-made jobs with known truth."""

import random

import pytest

from lostflops.account.late.timed import TimedLateness, judge_timed_steps, leads
from lostflops.ingest import ingest
from lostflops.store.run import Run
from made_captures import BASE, MS, collectives, end, frames, session, step, write
from memory_run import MemoryRun

EARLY = (1 * MS, 2 * MS, 4 * MS, 1 * MS, 2 * MS)


class AllAlike:
    """A mesh of ranks that all do the same work."""

    def cohorts(self, ranks):
        return dict.fromkeys(ranks, tuple(ranks))


def never(_number):
    return 0


def always(ns):
    return lambda _number: ns


def lates(tmp_path, behind, steps=40, **more) -> TimedLateness:
    """Lateness in a job of so many normal steps of 10 ms."""
    for rank, own in enumerate(behind):
        made = [step(n, n * 10 * MS, EARLY) for n in range(steps + 1)]
        told = session(rank, len(behind), host=more.get("hosts", ["a"] * 9)[rank], **more.get("facts", {}))
        ring = collectives(*((n, n * 10 * MS + 5 * MS + own(n)) for n in range(steps + 1)), ranks=range(len(behind)))
        write(tmp_path / "capture", rank, frames(rank, f"s{rank}", [told, *made, ring, end(9)]))
    ingest([tmp_path / "capture"], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        return judge_timed_steps(run, AllAlike())


def test_a_rank_that_is_late_in_every_step_is_named(tmp_path):
    found = lates(tmp_path, [never, never, always(2 * MS), never])
    (late,) = found.verdict.late
    assert (late.rank, late.late_steps, late.steps, late.ns, late.since) == (2, 40, 40, 2 * MS, None)
    assert found.say() == (
        "Rank 2 is late by 2.00 ms per step (20.0% of a step), in all 40 steps: it comes last to its collectives."
    )
    assert found.answer(2).table.most_shown == 2
    assert len(found.answer().table.rows) == 4


def test_of_a_long_job_the_newest_steps_are_looked_at(tmp_path, monkeypatch):
    """Rank 0 is late in the first 100 steps, rank 1 in the last 60; rings held 320 entries."""
    monkeypatch.setattr("lostflops.account.late.timed._MOST", 100)
    monkeypatch.setattr("lostflops.account.late.timed._FEWEST_STEPS", 40)
    behind = [lambda n: 2 * MS * (n <= 100), lambda n: 2 * MS * (n > 100)]
    (late,) = lates(tmp_path, behind, steps=160).verdict.late
    assert (late.rank, late.steps) == (1, 50)


def test_few_steps_prove_nothing(tmp_path):
    found = lates(tmp_path, [never, always(2 * MS)], steps=6)
    assert not found.verdict.late
    assert "fewer than 8 normal steps" in found.say()


def test_lateness_below_1_percent_of_a_step_names_nobody(tmp_path):
    found = lates(tmp_path, [never, always(MS // 12)])
    assert not found.verdict.late
    assert found.verdict.ranks[0].ns == pytest.approx(MS // 12)
    assert found.say() == "No rank is late. 3 steps suffice to find a rank that is 2.0% late."


def test_ranks_that_take_turns_are_not_named(tmp_path):
    found = lates(tmp_path, [lambda n: 2 * MS * (n % 2), lambda n: 2 * MS * ((n + 1) % 2)])
    assert not found.verdict.late


def test_a_rank_that_is_disturbed_for_a_while_is_not_named(tmp_path):
    """Each of three ranks is late for a stretch, the last for the longest: beyond chance, if steps were independent."""
    stretches = [range(1, 11), range(11, 22), range(22, 41)]
    behind = [lambda n, own=own: 2 * MS * (n in own) + n % 3 for own in stretches]
    assert not lates(tmp_path, [*behind, never]).verdict.late


def test_clocks_of_two_hosts_that_nothing_ties(tmp_path):
    found = lates(tmp_path, [never, always(2 * MS)], hosts=["a", "b"])
    assert found.say() == "The late rank is unknown: the ranks are on several hosts, whose clocks are not aligned."


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


@pytest.mark.parametrize(("behind", "named"), [(20 * MS, [1]), (10 * MS, [])])
def test_clocks_that_collectives_tie(behind, named):
    """They are known to 1 ms, and may have drifted apart by 12 ms at the edge of what is looked at."""
    with two_hosts(behind) as run:
        found = judge_timed_steps(run, AllAlike())
    assert [one.rank for one in found.verdict.late] == named


def test_clocks_that_contradict_each_other():
    with two_hosts(20 * MS, method="contradictory") as run:
        assert judge_timed_steps(run, AllAlike()).why_not.startswith("the ranks are on several hosts")


def test_on_accelerators_lateness_is_that_of_hosts(tmp_path):
    facts = {"device": "cuda", "device_name": "NVIDIA H100"}
    found = lates(tmp_path, [never, always(2 * MS)], facts=facts)
    assert found.verdict.late
    assert found.answer().notes == (
        "Lateness is that of hosts, which run ahead of their devices: it is not the wait of a device.",
    )
    assert "wait" not in found.say()


def test_one_rank_cannot_be_compared(tmp_path):
    says = lates(tmp_path, [never]).say()
    assert says == "The late rank is unknown: fewer than two ranks recorded when they enqueued collectives."


def test_a_step_would_be_shorter_by_what_the_rank_comes_after_all_others(tmp_path):
    lates(tmp_path, [never, always(2 * MS)])
    with Run.open(tmp_path / "run") as run:
        assert leads(run, [1]).tolist() == [2 * MS] * 40
        assert leads(run, [0]).tolist() == [0] * 40


def waits_next_to(traced, waits, steps=240, ranks=4):
    """Ranks that wait for data so long, in ms, in steps of 400 ms; some steps are in the window."""
    timings, ring = [], []
    for number in range(steps):
        for rank in range(ranks):
            start = 400 * MS * number
            own = {"rank": rank, "attempt": 0, "step": number, "start": start, "stop": start + 400 * MS}
            marks = {"forward": MS, "compiled": False, "profiled": number in traced}
            timings.append(own | marks | {"data": round(waits(rank, number) * MS)})
            met = {"rank": rank, "attempt": 0, "group_id": "0", "seq": number, "is_p2p": False}
            ring.append(met | {"created": start + 5 * MS})
    shown = [{"rank": rank, "step": number} for number in traced for rank in range(ranks)]
    hosts = [{"rank": rank, "host": "a"} for rank in range(ranks)]
    run = MemoryRun(timings=timings, steps=shown, enqueues=ring, ranks=hosts)
    return judge_timed_steps(run, AllAlike()).waits


def starves(rank, number, start, stop=10**9):
    """Rank 1 waits 300 ms in every second step, as with two loader workers; all wait a few ms."""
    return 5 + number % 3 + 300 * (rank == 1 and start <= number < stop and number % 2)


def test_a_rank_that_waits_for_data_next_to_the_window():
    traced = range(200, 208)
    found = waits_next_to(traced, lambda rank, number: starves(rank, number, 150))
    assert found == {1: pytest.approx(150 / 400, rel=0.01)}
    assert waits_next_to(traced, lambda rank, number: starves(rank, number, 0, 150)) == {}, "it is over"
    assert waits_next_to(traced, lambda rank, number: starves(rank, number, 0, 190)) == {}, "it ended before the window"
    assert waits_next_to(traced, lambda rank, number: starves(1, number, 0)) == {}, "all ranks wait"
    assert waits_next_to(traced, lambda rank, number: 5 + 2 * (rank == 1)) == {}, "too little"


def test_waits_for_data_that_come_and_go_blame_nobody():
    for seed in range(20):
        chance = random.Random(seed)
        waits = {(rank, number): chance.expovariate(1 / 20) for rank in range(4) for number in range(240)}
        assert waits_next_to(range(200, 208), lambda rank, number, waits=waits: waits[rank, number]) == {}, seed


def late_from(since, rank=1, ends=10**9, steps=160):
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
    return judge_timed_steps(run, AllAlike()).verdict


def test_a_rank_that_is_late_since_some_step():
    (late,) = late_from(110).late
    assert late.rank == 1
    assert abs(late.since - 110) <= 2
    assert late.in_steps == f"in all {late.steps} steps since step {late.since}"


def test_a_rank_that_was_late_and_no_longer_is():
    assert not late_from(60, ends=110).late
