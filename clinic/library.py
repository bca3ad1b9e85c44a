"""A library of recorded jobs whose truth is known, which is diagnosed again after each change of a rule.

Every folder is an entry: the sick run, and `outcome.json` with the causes and the measured saving. The work is ordered
so that the library is balanced whenever it is stopped: synthetic and real patients in turn, at different loads of the
machine and of different lengths, and again from the start.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec

from clinic.held_out.synthetic import CASES as FIRST_CASES
from clinic.held_out_2.synthetic import CASES as SECOND_CASES
from clinic.outcomes import Named, Row, earlier_rows, measured_savings, rows_of
from clinic.patients import NotHere, Patient
from clinic.real import REAL
from clinic.record import Job, record, time_job
from clinic.registry import HELD_OUT_SETS, NEWEST
from clinic.scoring import Outcome
from clinic.synthetic import CASES
from clinic.visits import gain, gains, make
from lostflops.core.results import Finding
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.diagnose import examine
from lostflops.explain.advise.diagnosis import diagnosis_code
from lostflops.explain.advise.findings import Priced
from lostflops.store.run import Run

ROUNDS: Final = 3
"""Rounds of sick and fixed runs: they differ by what a saving cannot be measured to."""
LOADS: Final = (0, 1, 2)
"""Cores that something else keeps busy while a job is recorded and timed."""
LENGTHS: Final = (1.0, 1.5, 0.75)
"""Steps of a recorded job, as a factor."""
TIMES: Final = 4
"""How often each patient comes, each time with another load, length or seed."""
SYNTHETIC_TO_REAL: Final = 5
"""Synthetic patients for each real one: they take seconds, not minutes."""
TIMED: Final = 3
"""One real entry in so many is timed, which takes longer than its recording. For the others, the saving that
`clinic/results` has of the patient is taken, and the timed ones show how far that is off."""
OUTCOME: Final = "outcome.json"
HELD_OUT: Final = "held-out"
"""Prefix of results of held-out sets."""
_BEING_MADE: Final = ".being-made"
_DIAGNOSES: Final = ".diagnoses"
RESULTS: Final = Path(__file__).with_name("results")
PROCESSES: Final = 2
_SPIN: Final = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    patient: Patient
    busy: int = 0
    """Cores that are kept busy."""
    rounds: int = ROUNDS


def entries(only: Collection[str] = ()) -> Iterator[Entry]:
    """Yield all entries, in the order in which they are made."""
    groups = zip_longest(*[_synthetic()] * SYNTHETIC_TO_REAL)
    for synthetic, real in zip_longest(groups, _real()):
        for entry in (*(synthetic or ()), real):
            if entry is not None and (not only or entry.patient.name in only):
                yield entry


def _real() -> Iterator[Entry]:
    named = {one.name: one for patients in (*HELD_OUT_SETS.values(), REAL) for one in patients if one.is_real}
    patients = sorted(named.values(), key=lambda one: crc32(one.name.encode()))
    for number in range(TIMES):
        for place, patient in enumerate(patients):
            busy = LOADS[(place + number) % len(LOADS)]
            factor = LENGTHS[(place // len(LOADS) + number) % len(LENGTHS)]
            entry = patient if patient.job is None else _with_steps(patient, factor)
            steps = "" if entry.job is None else f"-{entry.job.steps}-steps"
            is_timed = (place + place // len(LOADS)) % TIMED == number % TIMED
            yield Entry(f"{patient.name}-{busy}-busy{steps}-{number}", entry, busy, ROUNDS if is_timed else 0)


def _with_steps(patient: Patient, factor: float) -> Patient:
    """Return the patient with another number of recorded steps. What grows is timed over as many."""

    def longer(job: Job) -> Job:
        steps = round(factor * job.steps)
        return replace(job, steps=steps, plain_steps=steps if job.plain_steps == job.steps else job.plain_steps)

    assert patient.job is not None
    sick = longer(patient.job)
    fixed = None if patient.fixed is None else longer(patient.fixed)

    def choose(is_cured: bool) -> Job:
        return fixed if is_cured and fixed is not None else sick

    def time(is_cured: bool) -> float:
        return time_job(choose(is_cured), per_sample=patient.is_per_sample)

    return replace(
        patient,
        job=sick,
        fixed=fixed,
        make=lambda folder, is_cured: record(choose(is_cured), folder),
        time=None if patient.time is None else time,
    )


def _synthetic() -> Iterator[Entry]:
    cases = sorted((*CASES, *FIRST_CASES, *SECOND_CASES), key=lambda one: crc32(one.name.encode()))
    for number in range(TIMES):
        yield from (Entry(f"{case.name}-{number}", case.varied(number).patient) for case in cases)


def make_library(folder: Path, only: Collection[str] = (), limit: int | None = None) -> int:
    """Make the entries that are not there yet or failed, at most so many; return their number."""
    missing = (entry for entry in entries(only) if not (folder / entry.name / "sick" / "run.json").exists())
    made = 0
    for made, entry in enumerate(islice(missing, limit), 1):
        outcome = make_entry(entry, folder)
        why = f": {outcome.skipped or outcome.failed}" if outcome.skipped or outcome.failed else ""
        print(f"{made}: {entry.name}{why}", file=sys.stderr, flush=True)
    return made


def make_entry(entry: Entry, folder: Path) -> Outcome:
    """Make an entry beside the others and rename it when it is whole."""
    patient, scratch = entry.patient, folder / _BEING_MADE
    shutil.rmtree(scratch, ignore_errors=True)
    made = scratch / patient.name
    made.mkdir(parents=True)
    outcome = Outcome.of(patient, busy=entry.busy)
    try:
        with busy_cores(entry.busy):
            make(patient, scratch, entry.rounds)
            load = os.getloadavg()[0]
        outcome = replace(outcome, measured=gain(patient, scratch), rounds=gains(patient, scratch), load=load)
    except NotHere as error:
        outcome = replace(outcome, skipped=str(error))
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        outcome = replace(outcome, failed=f"did not run: {str(error).splitlines()[0]}")
    shutil.rmtree(made / "cured", ignore_errors=True)
    (made / OUTCOME).write_text(json.dumps(outcome.to_json(), indent=1), encoding="utf-8")
    shutil.rmtree(folder / entry.name, ignore_errors=True)
    made.rename(folder / entry.name)
    return outcome


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Keep so many cores busy. The processes end by themselves when this one does."""
    spinning = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def score_library(folder: Path) -> list[Row]:
    """Diagnose every entry with the code as it is, and return what each diagnosis says beside the truth. Diagnoses by
    the same code are kept. How jobs of held-out sets were first scored is added, and the outcomes of other jobs that
    the library lacks."""
    truths = {
        file.parent: Outcome.from_json(json.loads(file.read_text(encoding="utf-8")))
        for file in sorted(folder.rglob(OUTCOME))
        if (file.parent / "sick" / "run.json").exists() and _BEING_MADE not in file.parts
    }
    kept = folder / _DIAGNOSES / diagnosis_code()
    kept.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(PROCESSES) as pool:
        diagnoses = pool.map(partial(_diagnose_once, kept), truths)
        named = dict(zip(truths, diagnoses, strict=True))
    earlier = published()
    known = Counter(one.name for one in earlier.values())
    savings = measured_savings(list(truths.values()), [one for one in earlier.values() if known[one.name] == 1])
    pairs = zip(truths.items(), savings, strict=True)
    rows = [row for (entry, truth), saving in pairs for row in rows_of(truth, entry.name, named[entry], saving)]
    newest, recorded = {one.name for one in HELD_OUT_SETS[NEWEST]}, {truth.name for truth in truths.values()}
    rows = [replace(row, is_unseen=row.job in newest) for row in rows]
    for entry, one in earlier.items():
        is_unseen = entry.startswith(HELD_OUT)
        if one.name not in recorded or (is_unseen and one.name not in newest):
            rows += earlier_rows(one, entry, is_unseen=is_unseen)
    return rows


def published() -> dict[str, Outcome]:
    """Return the outcomes in `clinic/results`, by set and job."""
    files = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))}
    return {
        f"{name}/{patient['name']}": Outcome.from_json(patient)
        for name, told in files.items()
        for patient in told["patients"]
    }


def _diagnose_once(kept: Path, entry: Path) -> list[Named]:
    file = kept / f"{entry.name}.json"
    if not file.exists():
        written = file.with_suffix(f".{os.getpid()}")
        written.write_bytes(msgspec.json.encode(_diagnose(entry)))
        written.rename(file)
    return msgspec.json.decode(file.read_bytes(), type=list[Named])


def _diagnose(entry: Path) -> list[Named]:
    with Run.open(entry / "sick") as run:
        return [_named(finding, priced) for finding, priced in examine(Case(run)).items]


def _named(finding: Finding, priced: Priced) -> Named:
    raw = priced.with_waits
    if raw is None:
        return Named(finding.cause, priced.strength, None, 0.0, None, None, finding.ranks)
    return Named(finding.cause, priced.strength, raw.kind, priced.value, raw.low, raw.high, finding.ranks)
