"""A board that follows a job which becomes slower."""

from pathlib import Path

from lostflops.live.board import Board
from lostflops.live.follow import Follower
from lostflops.live.metrics import collect
from lostflops.live.notices import Notice
from made_jobs import MS, MadeJob


def notices(board: Board, folder: Path) -> list[Notice]:
    board.take(Follower(folder=folder, is_whole=True).poll(), 0)
    return [item for item in board.settle(0) if isinstance(item, Notice) and item.kind == "change"]


def slower_job(folder: Path, attempt: int = 0, **job: int) -> MadeJob:
    """400 steps of 200 ms, then as many of 300 ms."""
    made = MadeJob(
        folder, world_size=2, step_ms=200, attempt=attempt, begin=1_700_000_000_000_000_000 + attempt * 10**13
    )
    made.start()
    for rank in range(2):
        for number in range(800):
            step = made.step(rank, number)
            made.append(rank, [{**step, "stop": step["stop"] + 100 * MS * (number >= 400), **job}])
    return made


def test_a_change_is_a_notice_and_a_metric(tmp_path: Path) -> None:
    slower_job(tmp_path)
    board = Board()
    (notice,) = notices(board, tmp_path)
    assert notice.text == "Since about step 400, steps take 50% longer: 300 ms instead of 200 ms."
    samples = {metric.name: found for metric, found in collect(board, None).items()}
    assert ((("kind", "slower"),), 1) in samples["lostflops_anomalies_total"]
    assert ((("kind", "stall"),), 0) in samples["lostflops_anomalies_total"]


def test_the_rank_that_waits_for_data_is_named(tmp_path: Path) -> None:
    made = MadeJob(tmp_path, world_size=3, step_ms=200)
    made.start()
    for rank in range(3):
        for number in range(800):
            step, longer = made.step(rank, number), 100 * MS * (number >= 400)
            made.append(rank, [{**step, "stop": step["stop"] + longer, "data": MS + longer * (rank == 1)}])
    (notice,) = notices(Board(), tmp_path)
    assert notice.ranks == (1,)
    assert notice.text.endswith("300 ms instead of 200 ms; most of this is rank 1 waiting for data.")


def test_an_attempt_is_compared_with_itself_alone(tmp_path: Path) -> None:
    """A restart on slower machines has its own usual time."""
    made = MadeJob(tmp_path, world_size=1, step_ms=200)
    made.start()
    made.run(0, 400)
    again = MadeJob(tmp_path, world_size=1, attempt=1, step_ms=300, begin=made.begin + 10**12)
    again.start()
    again.run(0, 400)
    assert notices(Board(), tmp_path) == []


def test_steps_that_compile_or_are_profiled_are_left_out(tmp_path: Path) -> None:
    made = MadeJob(tmp_path, world_size=1, step_ms=200)
    made.start()
    for number in range(800):
        step = made.step(0, number)
        changed = {"stop": step["stop"] + 500 * MS, "profiled": True} if 400 <= number < 500 else {}
        made.append(0, [{**step, **changed}])
    assert notices(Board(), tmp_path) == []


def test_a_pause_of_some_seconds_counts_as_a_stall_and_not_as_a_hang(tmp_path: Path) -> None:
    """A checkpoint is one too; whether a job hangs is judged by the job itself, after a minute or more."""
    made = MadeJob(tmp_path, world_size=1, step_ms=200)
    made.start()
    made.run(0, 20)
    board = Board()
    notices(board, tmp_path)
    assert [item.kind for item in board.settle(11) if isinstance(item, Notice)] == ["stall"]
    (samples,) = [found for metric, found in collect(board, None).items() if "anomalies" in metric.name]
    assert {dict(labels)["kind"]: value for labels, value in samples} == {
        "slower": 0, "late_rank": 0, "data": 0, "memory": 0, "stall": 1
    }  # fmt: skip
