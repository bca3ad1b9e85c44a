"""How fast a job went, by what was recorded all along: hand-made jobs with known truth."""

from pathlib import Path

import pytest

from lostflops.account.pace.answers import (
    attempts,
    list_steps,
    notes,
    phases,
    report_recording,
    went,
)
from lostflops.account.pace.timings import choose_pace, paces
from lostflops.ingest import ingest
from lostflops.store.run import Run
from made_captures import BASE, MS, collectives, end, frames, session, step, write, write_window

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
    assert went(run, pace) == (
        "A normal step takes 10.0 ms (trimmed mean of 8 steps): outside 32.8%, backward 31.7%, forward "
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
        assert went(run, pace).startswith("1 step recorded, but no normal step")


def test_no_timings(tmp_path):
    path = write(tmp_path, 0, frames(0, "a", [session(0, 1), end(5)]))
    ingest([path], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        assert paces(run) == []
        assert choose_pace([]) is None


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
        assert "forward" not in went(run, pace)
        assert [row["share"] for row in phases(pace).to_json()] == [0.1, None, 0.4, 0.1, None]


def test_steps_count_after_the_collector_stopped_to_time_phases(tmp_path):
    with Run.open(unseen(tmp_path, {0, 6, 7, 8, 9})) as run:
        (pace,) = paces(run)
        assert pace.settled == 9
        assert [pace.share(phase) for phase in ("data", "forward", "backward")] == [0.1, 0.2, 0.4]
        assert pace.timed == 5
