from pathlib import Path
from typing import Any

import pytest

from lostflops.collect import capture
from lostflops.doctor.capture_checks import capture_checks
from lostflops.live.board import Board, StepLine
from lostflops.live.follow import Follower
from lostflops.live.notices import Notice
from lostflops.live.stall import behind
from lostflops.live.tally import Totals
from lostflops.live.watching import WatchInterval, watch
from made_jobs import BEGIN, MS, SECOND, MadeJob


class Watched:
    """A board on a folder, with a clock that the test moves."""

    def __init__(self, folder: Path, wait: float = 10) -> None:
        self.follower, self.board, self.now = Follower(folder=folder), Board(wait=wait), 0.0

    def look(self, seconds: float = 1.0) -> list[StepLine | Notice]:
        self.now += seconds
        self.board.take(self.follower.poll(), self.now)
        return list(self.board.settle(self.now))

    def lines(self, seconds: float = 1.0) -> list[StepLine]:
        return [item for item in self.look(seconds) if isinstance(item, StepLine)]

    def notices(self, seconds: float = 1.0) -> list[Notice]:
        return [item for item in self.look(seconds) if isinstance(item, Notice)]


def test_a_step_is_shown_when_all_ranks_have_it(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, late_ms={2: 20}), Watched(tmp_path)
    job.start()
    job.run(0, 1, ranks=[0, 1, 2])
    assert watched.lines() == []
    job.run(0, 1, ranks=[3])
    (line,) = watched.lines()
    assert (line.step, line.time, line.median, line.slowest) == (0, 120 * MS, 100 * MS, 2)
    assert line.data_share == pytest.approx(40 / 420)
    assert (line.samples, line.tokens, line.peak_memory) == (32, None, 4_000_000_000)
    assert line.rate(line.samples) == pytest.approx(32 / 0.12)
    assert (line.ranks, line.missing, line.marks) == (4, (), ("compiled",))


def test_steps_come_in_order_and_once(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, world_size=2), Watched(tmp_path)
    job.start()
    job.run(0, 5, ranks=[1])
    job.run(0, 3, ranks=[0])
    assert [line.step for line in watched.lines()] == [0, 1, 2]
    job.run(3, 2, ranks=[0])
    assert [line.step for line in watched.lines()] == [3, 4]
    assert watched.lines() == []


def test_a_rank_that_stops_reporting_is_named_after_the_wait_and_not_waited_for_again(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path), Watched(tmp_path, wait=10)
    job.start()
    job.run(0, 5)
    assert len(watched.lines()) == 5
    job.run(5, 1, ranks=[0, 1, 3])
    assert watched.look() == []
    assert watched.look(8) == []
    silent, line = watched.look(2)
    assert isinstance(silent, Notice)
    assert isinstance(line, StepLine)
    assert (silent.kind, silent.ranks) == ("silent", (2,))
    assert silent.text == "Other ranks continue without: rank 2 on node0: no step after 4, last heard from 11.0 s ago."
    assert (line.step, line.missing, line.samples) == (5, (2,), None)
    job.run(6, 1, ranks=[0, 1, 3])
    assert [(line.step, line.missing) for line in watched.lines()] == [(6, (2,))]
    job.run(5, 3, ranks=[2])
    job.run(7, 1, ranks=[0, 1, 3])
    back, line = watched.look()
    assert isinstance(back, Notice)
    assert isinstance(line, StepLine)
    assert (back.kind, back.ranks, line.step, line.missing) == ("back", (2,), 7, ())


def test_a_rank_that_never_reported_is_told_from_one_that_stopped(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path), Watched(tmp_path)
    job.start(0, 1, 2)
    job.run(0, 1, ranks=[0, 1, 2])
    assert watched.lines() == []
    begun, notice = watched.notices(10)
    assert begun.text == "Attempt 0: 4 ranks (3 so far), 1 host."
    assert notice.text == "Other ranks continue without: rank 3 never reported."


def test_a_record_that_was_dropped_is_not_waited_for(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, world_size=2), Watched(tmp_path)
    job.start()
    job.run(0, 3, ranks=[0])
    job.run(0, 1, ranks=[1])
    job.append(1, [job.step(1, 2)], dropped=1)
    assert [(line.step, line.missing) for line in watched.lines()] == [(0, ()), (1, (1,)), (2, ())]
    assert sum(session.dropped for session in watched.board.sessions) == 1


def test_a_restart_is_a_new_attempt_and_shows_who_died(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, world_size=2), Watched(tmp_path)
    job.start()
    job.run(0, 2)
    job.run(2, 1, ranks=[0])
    assert [line.step for line in watched.lines()] == [0, 1]
    again = MadeJob(tmp_path, world_size=2, attempt=1, begin=BEGIN + 60 * SECOND)
    again.start()
    again.run(0, 1)
    old, notice, new = watched.look()
    assert isinstance(old, StepLine)
    assert isinstance(notice, Notice)
    assert isinstance(new, StepLine)
    assert (old.attempt, old.step, old.missing) == (0, 2, (1,))
    assert (notice.kind, notice.text) == ("attempt", "The job restarted, attempt 1: 2 ranks, 1 host.")
    assert (new.attempt, new.step, new.missing) == (1, 0, ())


def test_attempts_are_told_apart_when_all_is_read_at_once(tmp_path: Path) -> None:
    """Also where a second host did not count the restart, and a rank of the first attempt left nothing."""
    for attempt, ranks in ((0, (0, 1, 2)), (1, (0, 1, 2, 3))):
        job = MadeJob(tmp_path, ranks_per_host=2, attempt=attempt, begin=BEGIN + attempt * 60 * SECOND)
        for rank in ranks:
            job.append(rank, [job.session(rank, restart=0 if rank > 1 else attempt)])
        job.run(0, 1, ranks=ranks)
    watched = Watched(tmp_path)
    assert [(line.attempt, line.missing) for line in watched.lines()] == [(0, (3,)), (1, ())]


def test_another_world_size_is_another_attempt(tmp_path: Path) -> None:
    MadeJob(tmp_path, world_size=4).start(0)
    MadeJob(tmp_path, world_size=2, attempt=1, begin=BEGIN + SECOND).start(1)
    watched = Watched(tmp_path, wait=10)
    assert [notice.text for notice in watched.notices()] == ["Attempt 0: 4 ranks (1 so far), 1 host."]
    assert [notice.text for notice in watched.notices(10)] == [
        "The job restarted, attempt 1: 2 ranks (1 so far), 1 host.",
    ]


def test_the_rank_that_enqueues_last_is_named_with_its_lateness(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, late_ms={2: 12}), Watched(tmp_path)
    job.start()
    job.run(0, 30)
    late = watched.lines()[-1].latecomer
    assert late is not None
    assert (late.rank, late.late_steps, late.steps) == (2, 28, 28)
    assert late.ns == pytest.approx(12 * MS, rel=1e-6)
    assert watched.board.lateness.mean_lateness() == {0: 0, 1: 1, 2: 12 * MS + 2, 3: 3}


def test_lateness_is_of_the_last_steps(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, late_ms={2: 12}), Watched(tmp_path)
    job.start()
    job.run(0, 30)
    watched.look()
    job.late_ms = {1: 7}
    job.run(30, 90)
    late = watched.lines()[-1].latecomer
    assert late is not None
    assert (late.rank, late.since) == (1, 30)
    assert late.ns == pytest.approx(7 * MS, rel=1e-6)


@pytest.mark.parametrize("kind", ["session", "step", "collectives", "overhead", "note", "job", ""])
def test_a_record_of_another_version_is_counted_and_left_out(tmp_path: Path, kind: str) -> None:
    job, watched = MadeJob(tmp_path, world_size=2), Watched(tmp_path)
    job.start()
    odd: list[Any] = [{"kind": kind, "entries": [[1]]}] if kind else [7]
    name = (
        "new"
        if kind == "session"
        else next(frame.session for frame in Follower(folder=tmp_path).poll() if frame.rank == 0)
    )
    with capture.rank_file(tmp_path, 0).open("ab") as file:
        file.write(capture.frame_bytes(0, name, 99, 0, odd))
    job.run(0, 3)
    assert [line.step for line in watched.lines()] == [0, 1, 2]
    assert watched.board.unreadable == 1
    checks = {check.name: check for check in capture_checks(tmp_path)}
    read_by_doctor = kind not in ("step", "collectives", "job")
    assert checks["run: records"].state == ("limited" if read_by_doctor else "ok")


@pytest.mark.parametrize("world", [2_100_000_000, 0])
def test_a_session_of_a_job_that_cannot_be_is_left_out(world: int) -> None:
    record = {"kind": "session", "rank": 0, "world_size": world, "host": "a", "wall": 1}
    board = Board()
    board.take([capture.Frame(0, "s", 0, 0, [record])], now=0.0)
    assert list(board.settle(now=100.0)) == []
    assert board.unreadable == 1


def test_few_steps_and_little_lateness_name_nobody(tmp_path: Path) -> None:
    """Somebody is last in every collective: by 1 ns a rank where nobody is late, and by 12 ms in the first steps."""
    job, watched = MadeJob(tmp_path / "alike"), Watched(tmp_path / "alike")
    job.start()
    job.run(0, 30)
    assert [line.latecomer for line in watched.lines()] == [None] * 30
    job, watched = MadeJob(tmp_path / "late", late_ms={2: 12}), Watched(tmp_path / "late")
    job.start()
    job.run(0, 9)
    assert [line.latecomer is None for line in watched.lines()] == [True] * 8 + [False]


def test_nobody_is_named_when_all_come_last_in_turn(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path), Watched(tmp_path)
    job.start()
    for number in range(40):
        job.late_ms = {number % 4: 5}
        job.run(number, 1)
    assert watched.lines()[-1].latecomer is None


def test_ranks_of_several_hosts_are_not_compared(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, ranks_per_host=1, late_ms={2: 12}), Watched(tmp_path)
    job.start()
    job.run(0, 5)
    assert [line.latecomer for line in watched.lines()] == [None] * 5
    assert watched.board.lateness.mean_lateness() == {}


@pytest.mark.parametrize("is_named", [True, False])
def test_stages_of_a_pipeline_are_not_compared(tmp_path: Path, is_named: bool) -> None:
    """The last stage always comes later to what all ranks meet at."""
    job, watched = MadeJob(tmp_path, late_ms={2: 12, 3: 12}), Watched(tmp_path)
    job.start()
    for rank in range(4):
        groups = {"pp": {"description": "mesh_pp", "ranks": [rank % 2, rank % 2 + 2]}} if is_named else {}
        sent = [] if is_named else [[0, "pp", None, "gloo:send", True, 8, 8, BEGIN]]
        job.append(rank, [{"kind": "collectives", "entries": sent, "groups": groups, "lost": 0}])
    job.run(0, 30)
    assert watched.lines()[-1].latecomer is None
    job.late_ms[3] = 30
    job.run(30, 90)
    late = watched.lines()[-1].latecomer
    assert (late.rank if late else None) == (3 if is_named else None)


def test_groups_of_one_name_and_other_members_are_not_mixed(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path), Watched(tmp_path)
    for rank, members, late in ((0, [0, 1], 0), (1, [0, 1], 5), (2, [2, 3], 100), (3, [2, 3], 103)):
        entries = [[n, "dp", n, "gloo:all_reduce", False, 8, 8, BEGIN + late * MS + n] for n in range(4)]
        groups = {"dp": {"description": "dp", "ranks": members}}
        record = {"kind": "collectives", "entries": entries, "groups": groups, "lost": 0}
        steps = [job.step(rank, 0, stop=BEGIN), job.step(rank, 1, start=BEGIN, stop=BEGIN + SECOND)]
        job.append(rank, [job.session(rank), record, *steps])
    watched.look()
    assert watched.board.lateness.mean_lateness() == {0: 0, 1: 5 * MS, 2: 0, 3: 3 * MS}


def test_a_stall_names_the_rank_that_did_not_come(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path), Watched(tmp_path, wait=10)
    job.start()
    job.run(0, 5)
    watched.look()
    for rank in range(4):
        job.append(rank, [job.enqueued(rank, 5 if rank != 1 else 4)])
    assert watched.look(9) == []
    (notice,) = watched.look(3)
    assert isinstance(notice, Notice)
    assert (notice.kind, notice.ranks) == ("stall", (1,))
    assert notice.text == (
        "No rank has finished a step for 12.0 s: rank 1 has not reached gloo:all_reduce 11 of group 0; 3 others have."
    )
    assert watched.look(30) == []


def test_a_collector_that_records_nothing_is_neither_missing_nor_a_stall(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, world_size=2), Watched(tmp_path, wait=10)
    job.start()
    job.run(0, 5)
    job.append(1, [{"kind": "overhead", "level": 3, "reason": "overhead was 3%"}])
    watched.look()
    job.run(5, 1, ranks=[0])
    assert [(line.step, line.missing) for line in watched.lines()] == [(5, (1,))], "nobody waits for rank 1"
    job.append(0, [{"kind": "overhead", "level": 3, "reason": "overhead was 3%"}])
    assert [notice.kind for notice in watched.notices()] == ["overhead"]
    assert watched.look(60) == []
    assert watched.board.blocking_ranks is None


def test_rings_that_were_read_while_the_job_moved_blame_nobody(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path), Watched(tmp_path, wait=10)
    job.start()
    job.run(0, 5)
    for rank in (0, 2, 3):
        job.append(rank, [job.enqueued(rank, 5)])
    watched.look()
    (notice,) = watched.look(12)
    assert isinstance(notice, Notice)
    assert (notice.kind, notice.ranks) == ("stall", ())
    assert watched.look(5) == []
    nothing = {"kind": "collectives", "entries": [], "groups": {}, "lost": 0}
    for rank in range(4):
        job.append(rank, [nothing])
    (notice,) = watched.look(5)
    assert isinstance(notice, Notice)
    assert (notice.kind, notice.ranks) == ("stall", (1,)), "now all rings were read at rest"
    assert watched.look(5) == []


def test_collectives_that_come_after_many_steps_count_until_newer_ones_do(tmp_path: Path) -> None:
    """A collector reads its ring every so many steps, and what it read comes behind them."""
    job, watched = MadeJob(tmp_path), Watched(tmp_path)
    job.start()
    named = []
    for first, late_ms in ((0, {2: 12}), (64, {1: 7}), (128, {})):
        numbers = range(first, first + 64)
        for rank in range(4):
            job.append(rank, [job.step(rank, number) for number in numbers])
        lines = watched.lines()
        named.append({line.latecomer and (line.latecomer.rank, round(line.latecomer.ns / MS)) for line in lines})
        assert len(lines) == 64
        job.late_ms = late_ms
        for rank in range(4):
            job.append(rank, [job.enqueued(rank, number) for number in numbers])
    assert named[:2] == [{None}, {(2, 12)}]
    assert (1, 7) in named[2]


def test_what_a_step_waited_for_is_not_told_by_edges(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, world_size=1), Watched(tmp_path)
    job.start()
    job.append(0, [job.step(0, 0)])
    job.append(0, [{"kind": "overhead", "step": 0, "own_share": 0.02, "level": 2, "reason": "took 2%"}])
    job.append(0, [job.step(0, 1, data=0)])
    assert [line.data_share for line in watched.lines()] == [pytest.approx(0.1), None]


def test_a_long_step_is_no_stall(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, step_ms=20_000), Watched(tmp_path, wait=10)
    job.start()
    job.run(0, 3)
    watched.look()
    assert watched.look(90) == []
    assert [item.kind for item in watched.look(20) if isinstance(item, Notice)] == ["stall"]


def test_who_waits_itself_does_not_hold_others_up() -> None:
    """Rank 1 is behind in `dp`, but stands in `tp` and waits for rank 2."""
    heads = {
        ("dp", (0, 1)): {0: (5, "all_reduce"), 1: (4, "all_reduce")},
        ("tp", (1, 2)): {1: (9, "all_gather"), 2: (8, "all_gather")},
    }
    found = behind(heads)
    assert found is not None
    assert (found.ranks, found.group) == ((2,), "tp")
    assert behind({("dp", (0, 1)): {0: (5, "all_reduce"), 1: (5, "all_reduce")}}) is None


def test_a_collector_that_records_less_says_so_once(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, world_size=2), Watched(tmp_path)
    job.start()
    watched.look()
    reduced = {"kind": "overhead", "step": 3, "own_share": 0.02, "level": 2, "reason": "2.0% of the step"}
    job.append(1, [reduced])
    (notice,) = watched.notices()
    assert notice.text == "The collector of rank 1 now records only step boundaries: 2.0% of the step."
    assert watched.notices() == []


def test_the_job_ended_when_every_rank_said_so(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, world_size=2), Watched(tmp_path)
    job.start()
    job.run(0, 1)
    watched.look()
    assert not watched.board.is_ended
    job.run(1, 1, ranks=[0])
    job.end()
    line, notice = watched.look()
    assert isinstance(line, StepLine)
    assert isinstance(notice, Notice)
    assert (line.step, line.missing) == (1, (1,))
    assert (notice.kind, notice.text) == ("ended", "All 2 ranks ended; still watching for another attempt.")
    assert watched.board.is_ended
    assert watched.look(100) == []


def test_a_job_of_which_all_ranks_ended_or_stopped_is_not_stalled(tmp_path: Path) -> None:
    job, watched = MadeJob(tmp_path, world_size=2), Watched(tmp_path, wait=10)
    job.start()
    job.run(0, 3)
    job.run(3, 1, ranks=[0])
    job.append(0, [{"kind": "end", "wall": BEGIN, "reason": "exit"}])
    watched.look()
    assert [item.kind for item in watched.notices(11)] == ["silent"]
    assert watched.look(100) == []


def test_watching_goes_on_for_a_while_after_the_end(tmp_path: Path) -> None:
    job = MadeJob(tmp_path, world_size=1)
    job.start()
    job.run(0, 1)
    job.end()
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] == 20:
            MadeJob(tmp_path, world_size=1, attempt=1, begin=BEGIN + SECOND).start()

    looks = list(watch(Follower(folder=tmp_path), Board(), WatchInterval(1.0, 600), lambda: now[0], sleep))
    kinds = [(item.kind, item.attempt) for look in looks for item in look if isinstance(item, Notice)]
    assert kinds == [("attempt", 0), ("ended", 0), ("attempt", 1)]
    assert now[0] == pytest.approx(20 + 600, abs=2), "attempt 1 never ended"


def test_quantiles_are_step_times() -> None:
    totals = Totals()
    assert totals.quantile(0.5) is None
    totals.times.extend(range(1, 101))
    assert (totals.quantile(0.5), totals.quantile(0.95), totals.quantile(1)) == (50, 95, 100)
