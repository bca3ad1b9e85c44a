import json
from pathlib import Path
from typing import Any

import pytest
from tests.predict.fit import jobs

from lostflops.cli import fit_runs
from lostflops.predict.fit.batches import MeasuredBatch
from lostflops.predict.fit.step_times import FittedStepTime

FIXED, EACH = 4e6, 1e5


class Jobs:
    """In place of real runs: steps of 4 ms and 0.1 ms a sample, memory in closed form."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[str], str]] = []
        self.variable = ""
        self.fails: dict[int, str] = {}
        self.samples = True
        self.bent = 0

    def measured(self, size: int, job: fit_runs.FitJob) -> MeasuredBatch | str:
        self.asked.append((size, list(job.words), job.environment.get(self.variable, "")))
        if size in self.fails:
            return self.fails[size]
        memory = jobs.job(size, extra=self.bent * size**2)
        time = FittedStepTime(size, FIXED + EACH * size, 0.004, 20)
        samples = float(2 * size) if self.samples else 64.0
        return MeasuredBatch(
            batch=size,
            memories=(memory,),
            time=time,
            steps=30,
            samples=samples,
            microbatches=1,
            process=memory.peak_bytes + 1000,
        )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    found = Jobs()
    monkeypatch.setattr(fit_runs, "measure_batch", found.measured)
    return found


def _json(out: str) -> Any:
    return json.loads(out)


def test_half_the_given_size_it_and_double_are_run(lostflops: Any, made: Jobs) -> None:
    outcome = lostflops("fit", "--json", "--memory", "12 kB", "--", "python", "t.py", "--batch-size", "64")
    assert outcome.code == 0, outcome.err
    assert [words[-1] for _, words, _ in made.asked] == ["32", "64", "128"]
    told = _json(outcome.out)
    assert told["schema"] == "lostflops.fit/1"
    assert told["argument"] == "--batch-size"
    assert told["sizes"] == [32, 64, 128]
    largest = told["largest"]["batch"]
    assert jobs.peak(largest) <= 11_000 < jobs.peak(largest + 1)
    assert largest - 2 <= told["largest"]["sure"] < largest
    assert told["largest"]["overhead"] == 1000
    assert told["throughput"]["near"] == pytest.approx(9 * FIXED / EACH)
    assert told["throughput"]["most"] == pytest.approx(2 * 1e9 / EACH)
    for row in told["curve"]:
        assert row["peak"] == jobs.peak(row["batch"])
        assert row["step_ns"] == pytest.approx(FIXED + EACH * row["batch"])
        assert row["rate_low"] <= row["rate"] <= row["rate_high"]
        assert (row["fits"] != "no") == (jobs.peak(row["batch"]) <= 11_000)
        assert (row["fits"] == "yes") == (row["peak_high"] <= 11_000)
    assert sum(one["bytes"] for one in told["owners"]) == jobs.peak(128)


def test_text_tells_what_json_tells(lostflops: Any, made: Jobs) -> None:
    outcome = lostflops("fit", "--memory", "12 kB", "--", "python", "t.py", "--batch-size", "64")
    told = " ".join(outcome.out.split())
    assert "The largest batch that fits 12.0 kB is 333, or 332 at the high end of the interval." in told
    assert "Batch 360 (" in told
    assert ") reaches 90% of the throughput limit of large batches (20.0 k samples/s)." in told
    assert "the process held 1.00 kB besides its tensors" in told
    assert "lostflops fit --keep fit --memory '12 kB' -- python t.py --batch-size 64" in outcome.out


def test_what_is_too_far_from_the_measured_is_not_told(lostflops: Any, made: Jobs) -> None:
    words = ("--json", "--memory", "12 GB", "--", "python", "t.py", "--batch-size", "64")
    told = _json(lostflops("fit", *words).out)
    assert "far above the measured peaks" in told["verdict"]
    assert told["largest"]["batch"] is None
    assert max(row["batch"] for row in told["curve"]) == 512


def test_a_variable_is_set(lostflops: Any, made: Jobs) -> None:
    made.variable = "BATCH"
    outcome = lostflops("fit", "--variable", "BATCH", "--sizes", "8,16,32", "--", "./train.sh")
    assert outcome.code == 0, outcome.err
    assert made.asked == [(size, ["./train.sh"], str(size)) for size in (8, 16, 32)]


def test_the_next_command_asks_the_same_and_keeps_it(lostflops: Any, made: Jobs) -> None:
    asked = ["--sizes", "8,16", "--steps", "40", "--memory", "12kB", "--", "python", "t.py", "--batch-size", "64"]
    assert lostflops("fit", *asked).out.splitlines()[-1] == f"Next: lostflops fit --keep fit {' '.join(asked)}"


def test_a_size_that_fails_is_left_out_and_told(lostflops: Any, made: Jobs) -> None:
    made.fails[128] = "failed with exit code 1"
    outcome = lostflops("fit", "--json", "--", "python", "t.py", "--batch-size", "64")
    told = _json(outcome.out)
    assert told["sizes"] == [32, 64]
    assert "Batch size 128 is left out: its run failed with exit code 1." in told["notes"]
    assert "two sizes are not enough to check that" in told["verdict"]


def test_one_run_is_not_enough(lostflops: Any, made: Jobs) -> None:
    made.fails = {64: "failed with exit code 1", 128: "failed with exit code 1"}
    outcome = lostflops("fit", "--", "python", "t.py", "--batch-size", "64")
    assert outcome.code == 1
    assert "1 of 3 runs could be measured, but two are needed. Batch size 64 is left out: its run failed" in outcome.err


def test_memory_that_is_no_line_is_refused(lostflops: Any, made: Jobs) -> None:
    made.bent = 3
    outcome = lostflops("fit", "--json", "--memory", "60 kB", "--", "python", "t.py", "--batch-size", "64")
    told = _json(outcome.out)
    assert "Other sizes cannot be predicted." in told["verdict"]
    assert told["largest"]["batch"] is None
    assert [row["peak"] for row in told["curve"] if row["measured"]] == [
        row["measured_peak"] for row in told["curve"] if row["measured"]
    ]
    assert all(row["peak"] is None for row in told["curve"] if not row["measured"])


def test_steps_of_as_many_samples_at_any_size_tell_no_throughput(lostflops: Any, made: Jobs) -> None:
    made.samples = False
    told = _json(lostflops("fit", "--json", "--", "python", "t.py", "--micro-batch-size", "64").out)
    assert "steps took 64, 64, 64 samples, not in proportion to the batch size" in told["verdict"]
    assert "throughput" not in told
    assert told["curve"][0]["peak"] == jobs.peak(told["curve"][0]["batch"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "python", "t.py"], "no argument of the command looks like a batch size"),
        (["--sizes", "8", "--", "t", "-b", "4"], "--sizes 8: give two or more whole numbers"),
        (["--memory", "0 B", "--", "t", "-b", "4"], "--memory 0 B is not above zero"),
        (["--device", "V100-SXM2", "--", "t", "-b", "4"], "give --memory"),
        (["--variable", "NOT_SET_HERE", "--", "t"], "environment variable NOT_SET_HERE is not a batch size"),
        (["--variable", "PATH", "--", "t"], "environment variable PATH is not a batch size"),
        (["--variable", "B", "--argument", "b", "--", "t"], "give only one"),
    ],
)
def test_refusals(lostflops: Any, words: list[str], message: str) -> None:
    outcome = lostflops("fit", *words)
    assert outcome.code == 2
    assert message in outcome.err


def test_kept_runs_are_those_of_one_command(lostflops: Any, made: Jobs, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").touch()
    words = ("--", "python", "t.py", "--batch-size")
    assert "has other files in it" in lostflops("fit", "--keep", tmp_path / "taken", *words, "64").err
    assert lostflops("fit", "--keep", tmp_path / "kept", *words, "64").code == 0
    assert lostflops("fit", "--keep", tmp_path / "kept", *words, "32").code == 0
    count = len(made.asked)
    outcome = lostflops("fit", "--keep", tmp_path / "kept", *words, "64", "--deep")
    assert outcome.code == 2
    assert "has runs of another command" in outcome.err
    assert len(made.asked) == count


def test_an_interrupted_run_is_put_aside_and_measured_again(lostflops: Any, made: Jobs, tmp_path: Path) -> None:
    words = ("fit", "--keep", tmp_path / "kept", "--", "python", "t.py", "--batch-size", "64")
    assert lostflops(*words).code == 0
    (tmp_path / "kept" / "batch-64" / "capture").mkdir(parents=True)
    outcome = lostflops(*words)
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "kept" / "batch-64-failed" / "capture").is_dir()
    assert [size for size, *_ in made.asked] == [32, 64, 128] * 2


def test_a_kept_run_is_not_run_again(
    lostflops: Any, made: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made.measured(64, fit_runs.FitJob([], {}, tmp_path, None))
    made.asked.clear()
    monkeypatch.setattr(fit_runs, "read_kept_batch", lambda size, folder: before if size == 64 else None)
    outcome = lostflops("fit", "--keep", tmp_path / "kept", "--", "python", "t.py", "--batch-size", "64")
    assert outcome.code == 0, outcome.err
    assert [size for size, *_ in made.asked] == [32, 128]
    assert f"reusing the run in {tmp_path / 'kept' / 'batch-64'}" in outcome.err
