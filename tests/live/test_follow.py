from pathlib import Path

import pytest

from lostflops.collect.capture import rank_file
from lostflops.live import follow
from lostflops.live.board import Board, StepLine
from lostflops.live.follow import Follower
from made_jobs import BEGIN, MS, SECOND, MadeJob

HOUR = 3600 * SECOND


def seen(follower: Follower) -> list[tuple[int, int]]:
    """Rank and number of the first record of each frame."""
    return [(frame.rank, frame.first) for frame in follower.poll()]


def test_only_what_was_appended_is_given(tmp_path: Path) -> None:
    job, follower = MadeJob(tmp_path, world_size=2), Follower(folder=tmp_path)
    assert seen(follower) == []
    job.start()
    assert seen(follower) == [(0, 0), (1, 0)]
    assert seen(follower) == []
    job.run(0, 1, ranks=[1])
    assert seen(follower) == [(1, 1)]


def test_a_folder_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    follower = Follower(folder=tmp_path / "capture")
    assert seen(follower) == []
    MadeJob(tmp_path / "capture", world_size=1).start()
    assert seen(follower) == [(0, 0)]


def test_a_torn_frame_waits_for_its_rest(tmp_path: Path) -> None:
    job, follower = MadeJob(tmp_path), Follower(folder=tmp_path)
    data = job.frame(0, [job.session(0)])
    for place, byte in enumerate(data):
        with rank_file(tmp_path, 0).open("ab") as file:
            file.write(bytes([byte]))
        assert seen(follower) == ([(0, 0)] if place == len(data) - 1 else [])
    assert follower.damaged == 0


def test_a_frame_that_stays_torn_is_damage_once_more_follows(tmp_path: Path) -> None:
    job, follower = MadeJob(tmp_path), Follower(folder=tmp_path)
    rank_file(tmp_path, 0).write_bytes(job.frame(0, [job.session(0)])[:-40])
    assert seen(follower) == []
    job.append(0, [job.step(0, 0)])
    job.append(0, [job.step(0, 1)])
    assert seen(follower) == [(0, 1), (0, 2)]
    assert follower.damaged == 1


def test_a_file_that_is_begun_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    job, follower = MadeJob(tmp_path), Follower(folder=tmp_path)
    job.start(0)
    job.run(0, 3, ranks=[0])
    assert len(seen(follower)) == 4
    rank_file(tmp_path, 0).unlink()
    again = MadeJob(tmp_path, attempt=1)
    again.start(0)
    assert [frame.session for frame in follower.poll()] == ["1-0"]


@pytest.mark.parametrize("one_file_per_host", [False, True])
def test_a_long_file_is_taken_up_at_its_end_and_the_session_is_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_file_per_host: bool
) -> None:
    monkeypatch.setattr(follow, "RANK_TAIL", 20_000)
    monkeypatch.setattr(follow, "HOST_TAIL", 20_000)
    for attempt in range(3):
        job = MadeJob(
            tmp_path,
            2,
            attempt=attempt,
            begin=BEGIN + attempt * HOUR,
            late_ms={1: 9},
            one_file_per_host=one_file_per_host,
        )
        job.start()
        for number in range(600):
            job.run(number, 1)
    follower = Follower(folder=tmp_path)
    frames = list(follower.poll())
    opened = {frame.session for frame in frames if frame.records[0]["kind"] == "session"}
    assert opened == {"2-0", "2-1"}
    assert {frame.session for frame in frames} == opened
    steps = {record["step"] for frame in frames for record in frame.records if record["kind"] == "step"}
    assert max(steps) == 599
    assert min(steps) > 500
    assert follower.skipped > 0
    assert follower.damaged == 0
    board = Board()
    board.take(frames, 0)
    late = [item for item in board.settle(0) if isinstance(item, StepLine)][-1].latecomer
    assert late is not None, "the members of groups were told long before"
    assert (late.rank, round(late.ns / MS)) == (1, 9)
    job.run(600, 1)
    assert len(seen(follower)) == 2


def test_the_whole_of_a_long_file_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "RANK_TAIL", 1000)
    job = MadeJob(tmp_path, world_size=1)
    job.start()
    job.run(0, 50)
    assert len(seen(Follower(folder=tmp_path, is_whole=True))) == 51
