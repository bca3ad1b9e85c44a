"""What a visit makes of a patient: runs made by hand, diagnosed by nobody."""

import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from clinic.measure import step_ns
from clinic.patients import NotHere, Patient
from clinic.record import usual
from clinic.registry import PATIENTS, chosen
from clinic.scoring import Finding
from clinic.visits import visit

from lostflops.core.errors import LostflopsError
from lostflops.ingest import ingest
from lostflops.store.run import Run
from made_captures import MS, end, frames, session, step, write

COUNT = 8
BASE = tempfile.TemporaryDirectory()


def timed(folder: Path, step_ms: float, samples: int = 4) -> Path:
    shutil.copytree(made(step_ms, samples), folder)
    return folder


@cache
def made(step_ms: float, samples: int) -> Path:
    """Two ranks; the first step takes a second and the last, which is profiled, two."""
    folder = Path(tempfile.mkdtemp(dir=BASE.name)) / "run"
    for rank in range(2):
        records, now = [session(rank)], 0
        for number in range(COUNT):
            ms = {0: 1000, COUNT - 1: 2000}.get(number, step_ms)
            phases = (0, round(ms * MS), 0, 0, 0)
            records.append(step(number, now, phases, samples=samples, profiled=number == COUNT - 1))
            now += sum(phases)
        write(folder / "capture", rank, frames(rank, f"s{rank}", [*records, end(now + 1)]))
    ingest([folder / "capture"], folder, workers=1)
    return folder


def patient(*causes: str, sick_ms: float = 20, cured_ms: float = 15, cured_samples: int = 4, **more: bool) -> Patient:
    def make(folder: Path, cured: bool) -> Path:
        return timed(folder, cured_ms, cured_samples) if cured else timed(folder, sick_ms)

    return Patient("made_up", causes, is_real=True, make=make, **more)


def found(*causes: str):
    return lambda _run: [{"cause": cause, "saving": {"value": 0.2}} for cause in causes]


def test_settled_steps_are_measured(tmp_path: Path) -> None:
    with Run.open(timed(tmp_path / "run", 20)) as run:
        assert step_ns(run) == pytest.approx(20 * MS)
        assert step_ns(run, per_sample=True) == pytest.approx(20 * MS / 8)


def test_the_cure_is_measured_and_the_sick_run_diagnosed(tmp_path: Path) -> None:
    one = visit(patient("gc"), tmp_path, diagnose=found("gc", "sync"))
    assert one.found == (Finding("gc", 0.2), Finding("sync", 0.2))
    assert one.measured == pytest.approx(0.25)
    assert {path.name for path in (tmp_path / "made_up").iterdir()} == {"sick", "cured"}


def test_sick_and_cured_are_timed_in_turn_without_a_recorder(tmp_path: Path) -> None:
    asked: list[bool] = []

    def time(cured: bool) -> float:
        asked.append(cured)
        return 0.3 if cured else {1: 0.5, 3: 0.4, 5: 0.6}[len(asked)]

    one = visit(replace(patient("gc"), time=time), tmp_path, rounds=3, diagnose=found("gc"))
    assert asked == [False, True] * 3
    assert one.rounds == pytest.approx((0.4, 0.25, 0.5))
    assert one.measured == pytest.approx(0.4)
    assert one.load is not None
    assert not (tmp_path / "made_up" / "cured").exists()
    again = visit(patient("gc"), tmp_path, runs=False, diagnose=found("gc"))
    assert again.measured == pytest.approx(0.4)


def test_a_usual_step_has_its_share_of_what_happens_now_and_then() -> None:
    calm = [1.0, 1.0, 1.0, 1.0, 2.0]
    assert usual([9.0] * 4 + calm * 6) == pytest.approx(1.2)
    assert usual([9.0] * 4 + calm * 4 + [50.0] * 10) == pytest.approx(1.2)
    assert usual([9.0] * 4 + [1.0, 3.0]) == pytest.approx(2.0)


def test_the_third_set_is_large_enough() -> None:
    third = chosen(held_out=3)
    assert sum(not patient.is_healthy for patient in third) >= 32
    assert sum(patient.is_healthy for patient in third) >= 16
    assert sum(len(patient.causes) > 1 for patient in third) >= 2
    assert all(patient.time is not None for patient in third if not patient.is_healthy)
    assert len({patient.name for patient in third}) == len(third)


def test_where_the_batch_grows_the_gain_is_per_sample(tmp_path: Path) -> None:
    job = patient("small_batch", cured_ms=40, cured_samples=16, is_per_sample=True)
    assert visit(job, tmp_path, diagnose=found()).measured == pytest.approx(0.5)


def test_a_healthy_job_has_no_cure(tmp_path: Path) -> None:
    one = visit(patient(), tmp_path, diagnose=found())
    assert (one.measured, one.is_false_alarm) == (None, False)
    assert not (tmp_path / "made_up" / "cured").exists()


def test_runs_that_are_there_are_not_made_again(tmp_path: Path) -> None:
    assert visit(patient("gc"), tmp_path, runs=False).skipped == "no run of it is there"
    timed(tmp_path / "made_up" / "sick", 20)
    one = visit(patient("gc"), tmp_path, runs=False, diagnose=found("gc"))
    assert (one.is_top_1, one.measured) == (True, None)


def test_what_cannot_run_here_is_skipped_and_what_cannot_be_told_is_wrong(tmp_path: Path) -> None:
    def not_here(_folder: Path, _cured: bool) -> Path:
        raise NotHere("needs root")

    def refuses(_run: Run):
        raise LostflopsError("cannot tell")

    assert visit(Patient("away", ("gc",), True, not_here), tmp_path).skipped == "needs root"
    one = visit(patient("gc"), tmp_path, diagnose=refuses)
    assert (one.failed, one.is_top_1) == ("LostflopsError: cannot tell", False)


def test_patients_are_called_by_name() -> None:
    names = [patient.name for patient in PATIENTS]
    assert len(names) == len({*names})
    assert [patient.name for patient in chosen(["thermal", "slow_device"])] == ["slow_device", "thermal"]
    with pytest.raises(ValueError, match="no patient nobody"):
        chosen(["nobody"])


def test_there_are_enough_patients() -> None:
    real = [patient for patient in PATIENTS if patient.is_real]
    assert sum(not patient.is_healthy for patient in real) >= 20
    assert sum(patient.is_healthy for patient in real) >= 6
    assert sum(len(patient.causes) > 1 for patient in real) >= 3
