"""Every nanosecond of a job's life is on the line where a reader of the capture would put it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lostflops.account.job.life import LIFE, life_of, lives
from lostflops.explain.analyze.report import report
from lostflops.ingest import ingest
from lostflops.store.run import Run
from made_captures import BASE, MS, Record, end, fact, frames, session, step, write

USUAL = 100
"""Normal step in ms."""


def attempt(start: int, *steps: dict[str, int | bool], waits: int = 500, ends: int = 200) -> list[Record]:
    """A process that starts at `start` ms, waits, takes these steps, and ends."""
    made, now = [session(0, 1, wall=start * MS)], (start + waits) * MS
    for number, facts in enumerate(steps):
        ms = int(facts.get("ms", USUAL))
        more = {name: value * MS if name in ("saving", "evaluating") else value for name, value in facts.items()}
        more.pop("ms", None)
        made.append(step(number, now, (0, 0, 0, 0, ms * MS), **more))
        now += ms * MS
    return [*made, end(now + ends * MS)]


def read_life(folder: Path, *attempts: list[Record]) -> dict[str, int]:
    whole = b"".join(frames(0, f"attempt-{number}", records) for number, records in enumerate(attempts))
    write(folder / "capture", 0, whole)
    ingest([folder / "capture"], folder, workers=1)
    with Run.open(folder) as run:
        life = life_of(run)
        [(start, stop)] = run.rows("select min(start), max(stop) from attempts")
    assert sum(life.values()) == stop - start
    assert set(life) <= set(LIFE)
    return {line: ns // MS for line, ns in life.items() if ns}


def test_each_kind_of_loss_is_on_its_line(tmp_path: Path) -> None:
    normal: list[dict[str, int | bool]] = [{} for _ in range(20)]
    found = read_life(
        tmp_path,
        attempt(
            0,
            {"ms": 900},
            *normal,
            {"ms": 600, "saving": 500},
            {"ms": 400, "evaluating": 300},
            {"ms": 250, "profiled": True},
            {"ms": 150},
            {"ms": 1100},
            {"ms": 300, "compiled": True},
        ),
    )
    assert found == {
        "training": 27 * USUAL + 50,  # a step of 150 ms is no stall
        "preparing": 500,
        "starting": 800,
        "compiling": 200,
        "checkpointing": 500,
        "evaluating": 300,
        "profiling": 150,
        "stalled": 1000,
        "ending": 200,
    }


def test_time_between_attempts_is_lost_by_restarting(tmp_path: Path) -> None:
    steps: list[dict[str, int | bool]] = [{} for _ in range(12)]
    first = attempt(0, *steps)
    found = read_life(tmp_path, first, attempt(1_900 + 3_000, *steps))
    assert found["restarting"] == 3_000
    assert found["preparing"] == 2 * 500
    assert found["training"] == 24 * USUAL


def test_each_attempt_has_a_normal_step_of_its_own(tmp_path: Path) -> None:
    """The first had fewer ranks: its steps of 300 ms are not stalled. The last has too few steps to have its own."""
    first = attempt(0, *[{"ms": 300} for _ in range(12)])
    second = attempt(10_000, *[{} for _ in range(12)])
    found = read_life(tmp_path, first, second, attempt(20_000, {}, {}, {}))
    assert found["training"] == 12 * 300 + 15 * USUAL
    assert "stalled" not in found


def test_an_attempt_without_a_step_only_starts(tmp_path: Path) -> None:
    steps: list[dict[str, int | bool]] = [{} for _ in range(12)]
    found = read_life(tmp_path, attempt(0, *steps), attempt(5_000, waits=700, ends=300))
    assert found["preparing"] == 500 + 1_000


def test_a_rank_without_steps_beside_one_that_trains_is_unknown(tmp_path: Path) -> None:
    steps: list[dict[str, int | bool]] = [{} for _ in range(12)]
    for rank, made in enumerate([attempt(0, *steps), attempt(0, waits=700, ends=300)]):
        write(tmp_path / "capture", rank, frames(rank, f"rank-{rank}", made))
    ingest([tmp_path / "capture"], tmp_path, workers=1)
    with Run.open(tmp_path) as run:
        life = life_of(run)
    assert (life["unknown"], life["preparing"]) == (1_000 * MS, 500 * MS)


def test_an_attempt_without_a_time_is_not_part_of_the_life(tmp_path: Path) -> None:
    steps: list[dict[str, int | bool]] = [{} for _ in range(12)]
    first = attempt(0, *steps)
    assert read_life(tmp_path / "first", first) == read_life(tmp_path / "both", first, [])


def test_time_in_which_another_attempt_runs_is_not_lost_by_restarting(tmp_path: Path) -> None:
    """The first runs from 0 to 6,700 ms, the second from 1,000 to 1,700, and the third starts at 7,000."""
    steps: list[dict[str, int | bool]] = [{} for _ in range(60)]
    others = [attempt(1_000, *[{} for _ in range(0)]), attempt(7_000, *steps)]
    write(
        tmp_path / "capture",
        0,
        b"".join(frames(0, f"attempt-{n}", made) for n, made in enumerate([attempt(0, *steps), *others])),
    )
    ingest([tmp_path / "capture"], tmp_path, workers=1)
    with Run.open(tmp_path) as run:
        assert life_of(run)["restarting"] == 300 * MS


def test_lost_records_of_steps_are_unknown(tmp_path: Path) -> None:
    steps: list[dict[str, int | bool]] = [{} for _ in range(20)]
    made = attempt(0, *steps)
    assert read_life(tmp_path, [*made[:8], *made[11:]])["unknown"] == 3 * USUAL


@given(
    times=st.lists(
        st.fixed_dictionaries(
            {"ms": st.integers(1, 1000)},
            optional={"saving": st.integers(0, 1200), "evaluating": st.integers(0, 1200), "profiled": st.booleans()},
        ),
        max_size=30,
    ),
    between=st.integers(-100, 2000),
)
def test_lines_sum_to_the_whole(tmp_path_factory, times: list[dict[str, int | bool]], between: int) -> None:
    first = attempt(0, *times)
    length = 700 + sum(int(one.get("ms", USUAL)) for one in times)
    folder = tmp_path_factory.mktemp("life")
    whole = [first, attempt(length + max(between, 0), *times)]
    assert min(read_life(folder, *whole).values()) >= 0


def test_the_whole_job_counts_from_its_command_to_its_end(tmp_path: Path) -> None:
    """The command starts 5 s before the first record: the process 1 s later, torch after 3 s, steps after 5.5 s."""
    made = attempt(5_000, *[{} for _ in range(12)])
    began = {"command": BASE, "process": BASE + 1_000 * MS, "torch": BASE + 3_000 * MS, "process_group": 0}
    over = 5_500 + 12 * USUAL
    made = [made[0], fact("began", began), *made[1:-1], fact("ended", {"wall": BASE + (over + 150) * MS}), made[-1]]
    made.append(fact("command", {"start": BASE, "stop": BASE + (over + 900) * MS, "exit_code": 0, "signal": None}))
    assert life_in(tmp_path, made) == {
        "launching": 1_000,
        "importing": 2_000,
        "preparing": 2_500,
        "training": 12 * USUAL,
        "ending": 150,
        "recording": 50,
        "leaving": 700,
    }


def test_compilations_before_the_first_step_are_no_preparation(tmp_path: Path) -> None:
    made = attempt(0, *[{} for _ in range(12)])
    told = {"step": 0, "start": BASE + 100 * MS, "ns": 300 * MS, "stack": "main train.py:4", "is_forward": True}
    inside = {**told, "start": BASE + 150 * MS, "ns": 50 * MS}
    later = {**told, "start": BASE + 450 * MS, "ns": 500 * MS}  # 50 ms of it are before the first step
    facts = [fact("compilation", one) for one in (told, inside, later)]
    found = life_in(tmp_path, [made[0], *facts, *made[1:]])
    assert (found["preparing"], found["compiling"]) == (150, 350)


@given(
    times=st.fixed_dictionaries({name: st.integers(0, 3_000) for name in ("command", "process", "torch")}),
    ends=st.fixed_dictionaries({name: st.integers(0, 3_000) for name in ("wall", "stop")}),
    compiled=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 3_000)), max_size=3),
    count=st.integers(0, 12),
)
def test_whatever_clocks_say_every_nanosecond_is_on_one_line(
    tmp_path_factory, times: dict[str, int], ends: dict[str, int], compiled: list[tuple[int, int]], count: int
) -> None:
    made = attempt(1_000, *[{} for _ in range(count)])
    began = {name: BASE + ms * MS for name, ms in times.items()}
    facts = [fact("compilation", {"start": BASE + start * MS, "ns": ns * MS}) for start, ns in compiled]
    last = [fact("ended", {"wall": BASE + ends["wall"] * MS}), fact("command", {"stop": BASE + ends["stop"] * MS})]
    found = life_in(tmp_path_factory.mktemp("life"), [made[0], fact("began", began), *facts, *made[1:], *last])
    stop = 1_000 + 500 + count * USUAL + 200
    assert min(found.values()) > 0
    assert sum(found.values()) == max(stop, ends["stop"]) - min(1_000, *times.values())


def test_the_lives_of_many_ranks_close_each_for_itself(tmp_path: Path) -> None:
    """64 ranks that start one after another; half of them are killed, so that only their launcher's end is known."""
    for rank in range(64):
        made = attempt(1_000 + 10 * rank, *[{} for _ in range(10)])
        began = fact("began", {"command": BASE, "process": BASE + 5 * rank * MS, "torch": BASE + (500 + rank) * MS})
        end_of = fact("command", {"stop": BASE + 4_000 * MS, "exit_code": 1})
        whole = [made[0], began, *(made[1:] if rank % 2 else made[1:-1]), end_of]
        write(tmp_path / "capture", rank, frames(rank, f"rank-{rank}", whole))
    ingest([tmp_path / "capture"], tmp_path, workers=1)
    with Run.open(tmp_path) as run:
        found = lives(run)
        assert life_of(run).total() == 64 * 4_000 * MS
    assert {sum(split.total() for split, _, _ in attempts) for attempts in found.values()} == {4_000 * MS}


def test_facts_of_a_stranger_are_no_times(tmp_path: Path) -> None:
    made = attempt(0, *[{} for _ in range(12)])
    facts = [fact("began", ["process"]), fact("ended", {"wall": "soon"}), fact("compilation", 7), fact("command", None)]
    assert life_in(tmp_path, [made[0], *facts, *made[1:]]) == read_life(tmp_path / "plain", made)


def life_in(folder: Path, made: list[Record]) -> dict[str, int]:
    write(folder / "capture", 0, frames(0, "one", made))
    ingest([folder / "capture"], folder, workers=1)
    with Run.open(folder) as run:
        return {line: ns // MS for line, ns in life_of(run).items() if ns}


def test_what_follows_after_the_collector_stopped_is_unknown(tmp_path: Path) -> None:
    made = attempt(0, *[{} for _ in range(12)])
    ends = fact("ended", {"wall": BASE + 1_850 * MS})
    found = life_in(tmp_path, [*made[:-1], fact("stopped", {"wall": BASE + 1_700 * MS}), ends, made[-1]])
    assert (found["unknown"], found["recording"], "ending" in found) == (150, 50, False)


def test_a_rank_that_left_before_the_last_attempt_does_not_last_until_the_commands_end(tmp_path: Path) -> None:
    """Two ranks train; only one is in the second attempt, after which the command ends."""
    steps: list[dict[str, int | bool]] = [{} for _ in range(12)]
    over = fact("command", {"start": BASE, "stop": BASE + 9_000 * MS, "exit_code": 0})
    first, second = attempt(0, *steps), attempt(4_000, *steps)
    write(tmp_path / "capture", 0, frames(0, "a", first) + frames(0, "b", [*second, over]))
    write(tmp_path / "capture", 1, frames(1, "c", [*first, over]))
    ingest([tmp_path / "capture"], tmp_path, workers=1)
    with Run.open(tmp_path) as run:
        whole = {rank: sum(split.total() for split, _, _ in attempts) for rank, attempts in lives(run).items()}
        job = report(run).to_json()["job"]
    assert whole == {0: 9_000 * MS, 1: 1_900 * MS}
    assert job["wall_ns"] == 9_000 * MS


def test_torch_alone_is_imported_and_what_came_before_prepares(tmp_path: Path) -> None:
    made = attempt(5_000, *[{} for _ in range(12)])
    began = {"command": BASE, "process": BASE, "import": BASE + 2_000 * MS, "torch": BASE + 3_000 * MS}
    found = life_in(tmp_path, [made[0], fact("began", began), *made[1:]])
    assert (found["importing"], found["preparing"]) == (1_000, 2_000 + 2_500)
