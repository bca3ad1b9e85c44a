"""Verbs on what `lostflops run` recorded, with a deep window and without."""

import json

import pytest

from lostflops.ingest import ingest
from made_captures import MS, collectives, end, frames, session, step, write, write_window

PHASES = (1 * MS, 2 * MS, 4 * MS, 1 * MS, 2 * MS)
STEPS = 40


def recorded(folder, windows=(), profiled_us=10_000):
    """Two ranks, the second 2 ms late in each of 40 steps of 10 ms; steps 20 and 21 have a deep window."""
    capture = folder / "run" / "capture"
    for rank in range(2):
        steps = [step(n, n * 10 * MS, PHASES, samples=4, own=MS // 10, profiled=n in (20, 21)) for n in range(STEPS)]
        ring = collectives(*((n, n * 10 * MS + 5 * MS + rank * 2 * MS) for n in range(STEPS)))
        write(
            capture, rank, frames(rank, f"s{rank}", [session(rank), *steps, ring, end(STEPS * 10 * MS)], dropped=rank)
        )
        for window in windows:
            write_window(capture, rank, window, profiled(20, 21, length=profiled_us))
    ingest([capture], folder / "run", workers=1)
    return folder / "run"


def profiled(*numbers, length=10_000):
    events = []
    for place, number in enumerate(numbers):
        start = place * length
        name = f"ProfilerStep#{number}"
        events.append(event("user_annotation", name, start, length))
        events.append(event("cpu_op", "aten::mm", start + 100, 8_000))
    return events


def event(category, name, start, dur):
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur, "args": {}}


@pytest.fixture
def ask(lostflops):
    def asked(*words):
        outcome = lostflops(*words, "--json")
        assert (outcome.code, outcome.err) == (0, "")
        return json.loads(outcome.out)

    return asked


def test_report_without_a_deep_window(tmp_path, ask, lostflops):
    run = recorded(tmp_path)
    found = ask("report", run)
    assert found["verdict"] == (
        "A normal step takes 10.0 ms (trimmed mean of 37 steps; 95% take up to 10.0 ms): backward 40.0%, forward "
        "20.0%, outside 20.0%, data 10.0%, optimizer 10.0%. Rank 1 is late by 2.00 ms per step (20.0% of "
        "a step), in all 37 steps: it comes last to its collectives. "
        "Recorded 40 steps at a cost of 1% of the step."
    )
    assert found["notes"][0].endswith("lostflops run --steps FIRST:COUNT, or lostflops snap while the job runs.")
    assert found["recorded"]["samples_per_second"] == pytest.approx(800)
    assert found["recorded"]["records_dropped"] == 1
    assert (found["ledger"]["total_ns"], found["losses"], found["mfu"]["value"]) == (0, [], None)
    assert {row["phase"]: row["ns"] for row in found["step_phases"]} == dict(
        zip(("data", "forward", "backward", "optimizer", "outside"), PHASES, strict=True)
    )
    text = lostflops("report", run).out
    assert "No rank recorded" not in text
    assert text.splitlines()[-1] == f"Next: lostflops steps {run}"


def test_report_with_a_deep_window(tmp_path, ask):
    found = ask("report", recorded(tmp_path, windows=[1]))
    assert found["ledger"]["total_ns"] == 2 * 2 * 10 * MS
    told = found["recorded"]
    assert (told["steps"], told["settled_steps"], told["step_p50_ns"], told["step_p95_ns"]) == (
        40,
        37,
        10 * MS,
        10 * MS,
    )
    assert (told["collector_share"], told["profiled_ratio"], told["profiled_steps"]) == (pytest.approx(0.01), 1.0, 2)
    assert (told["window_first_step"], told["window_last_step"], told["window"]) == (20, 21, "20 to 21")
    assert found["throughput"]["samples_per_second"] == pytest.approx(800)
    assert found["throughput"]["tokens_per_second"] is None


def test_rates_are_of_normal_steps(tmp_path, ask):
    """Profiled steps take twice as long: they are what the ledger shows, not how fast the job is."""
    found = ask("report", recorded(tmp_path, windows=[1], profiled_us=20_000), "--tokens-per-step", "50")["throughput"]
    assert found["step_ns"] == 20 * MS
    assert found["steps_per_second"] == pytest.approx(100)
    assert found["tokens_per_second"] == pytest.approx(5_000)


def test_what_the_user_says_goes_before_what_was_recorded(tmp_path, ask):
    found = ask("report", recorded(tmp_path, windows=[1]), "--samples-per-step", "100")
    assert found["throughput"]["samples_per_second"] == pytest.approx(10_000)


def test_steps_without_a_deep_window(tmp_path, ask, lostflops):
    run = recorded(tmp_path)
    found = ask("steps", run)
    assert found["steps"] == []
    assert [row["step"] for row in found["timings"]] == list(range(40))
    assert found["recorded"]["settled_steps"] == 37
    assert [row["attempt"] for row in found["attempts"]] == [0]
    one = ask("steps", run, "--step", "7", "--rank", "1")
    assert [(row["step"], row["time_ns"], row["slowest_rank"]) for row in one["timings"]] == [(7, 10 * MS, 1)]
    unknown = lostflops("steps", run, "--step", "99")
    assert unknown.code == 2
    assert "no step 99 was recorded; attempt 0 has steps 0 to 39" in unknown.err
    assert lostflops("steps", run, "--rank", "7").code == 2


def test_steps_with_a_deep_window(tmp_path, ask):
    run = recorded(tmp_path, windows=[1])
    found = ask("steps", run)
    assert [row["step"] for row in found["steps"]] == [20, 21]
    assert found["recorded"]["steps"] == 40
    outside = ask("steps", run, "--step", "7")
    assert (outside["steps"], [row["step"] for row in outside["timings"]]) == ([], [7])
    both = ask("steps", run, "--step", "7", "--step", "20")
    assert ([row["step"] for row in both["steps"]], [row["step"] for row in both["timings"]]) == ([20], [7, 20])


def test_ranks_without_a_deep_window(tmp_path, ask, lostflops):
    run = recorded(tmp_path)
    found = ask("ranks", run)
    assert found["verdict"].startswith("Rank 1 is late by 2.00 ms per step (20.0% of a step), in all 37 steps")
    assert [(row["rank"], row["lateness_ns"], row["late_steps"]) for row in found["enqueues"]] == [
        (1, 2 * MS, 37),
        (0, -2 * MS, 0),
    ]
    assert (found["stragglers"], found["ranks"]) == ([], [])
    assert lostflops("ranks", run).out.splitlines()[-1] == f"Next: lostflops steps {run}"


def test_ranks_with_a_deep_window(tmp_path, ask):
    found = ask("ranks", recorded(tmp_path, windows=[1]))
    assert not found["verdict"].startswith("Rank 1 is late")
    assert found["enqueues"][0]["rank"] == 1


@pytest.mark.parametrize("verb", ["report", "steps", "ranks", "kernels", "comm", "pipeline", "info"])
def test_no_verb_fails_without_a_deep_window(tmp_path, lostflops, verb):
    outcome = lostflops(verb, recorded(tmp_path))
    assert (outcome.code, outcome.err) == (0, "")


def test_info(tmp_path, ask, lostflops):
    run = recorded(tmp_path)
    found = ask("info", run)
    held = found["contents"]["held"]
    assert (held["formats"], held["timed_steps"], held["enqueues"], held["attempts"]) == ("capture", 40, 80, 1)
    assert found["contents"]["verdict"] == "2 of 2 ranks, 40 steps, 0 events."
    assert found["quality"]["verdict"] == "Data quality of 2 ranks: 1 good, 1 usable with gaps, 0 poor."
    assert found["quality"]["doubtful_ranks"][0]["reasons"] == "records_dropped: 1 (2.3%)"


def test_a_folder_with_a_capture_and_no_run(tmp_path, lostflops):
    capture = tmp_path / "run" / "capture"
    write(capture, 0, frames(0, "a", [session(0, 1), step(0, 0, PHASES)]))
    outcome = lostflops("report", tmp_path / "run")
    assert f"lostflops ingest {capture} -o {tmp_path / 'run'}" in outcome.err
    assert lostflops("ingest", capture, "-o", tmp_path / "run").code == 0
    assert lostflops("report", tmp_path / "run").code == 0
