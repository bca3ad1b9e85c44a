"""The ledger by phase of the job: a trace by hand, random ones against a walk over every microsecond, and threads."""

import random
from collections import Counter

import pytest
from tests.ingest.conftest import Traces
from tests.ingest.test_kineto_golden import kernel, launch, note, op

from lostflops.account.derive.derive import derive
from lostflops.account.facts.job_phases import NO_PHASE
from lostflops.account.ledger.answers import ledgers, total_of
from lostflops.account.ledger.lines import BUSY_LINES
from lostflops.account.ledger.scope import scope
from lostflops.explain.analyze.report import report
from lostflops.ingest import ingest
from lostflops.store.run import Run

US = 1000
LOOP = [
    *(note("phase:rollout", 0, 100), launch(1, 5), kernel(1, 10, 50), launch(2, 50), kernel(2, 70, 40)),
    *(note("phase:reward", 100, 60), note("score", 110, 20)),
    *(note("phase:train", 160, 140), launch(3, 180), kernel(3, 190, 60), launch(4, 200), kernel(4, 260, 60)),
]
"""The device is idle from 60 to 70, from 110 to 190, of which the host is in reward until 160, and from 250 to 260."""


@pytest.fixture
def written(tmp_path):
    return Traces(tmp_path)


def read_ledgers(written, *by_rank):
    paths = [written.write(f"rank{rank}.json", events) for rank, events in enumerate(by_rank)]
    ingest(paths, written.run, workers=1)
    with Run.open(written.run) as run:
        return list(ledgers(run, scope(run, None)))


def walls(ledger):
    assert Counter(ledger.lines) == sum((Counter(lines) for lines in ledger.job_phases.values()), Counter())
    return {name: sum(lines.values()) // US for name, lines in ledger.job_phases.items()}


def test_a_device_is_in_the_phase_of_its_work_and_when_idle_in_that_of_the_host(written):
    [ledger] = read_ledgers(written, LOOP)
    assert walls(ledger) == {"rollout": 100, "reward": 50, "train": 160}
    assert ledger.job_phases["reward"]["compute"] == 0
    assert [ledger.job_phases[name]["compute"] for name in ("rollout", "train")] == [90 * US, 120 * US]


def test_names_of_a_known_loop_are_phases_without_a_prefix(written):
    names = {"phase:rollout": "gen", "phase:reward": "reward", "phase:train": "update_actor"}
    [ledger] = read_ledgers(written, [{**event, "name": names.get(event["name"], event["name"])} for event in LOOP])
    assert walls(ledger) == {"gen": 100, "reward": 50, "update_actor": 160}


def test_a_phase_inside_a_phase_is_part_of_it(written):
    [ledger] = read_ledgers(written, [*LOOP, note("phase:backward", 170, 60)])
    assert walls(ledger) == {"rollout": 100, "reward": 50, "train": 160}


def test_a_job_without_phases_has_one_row(written):
    [ledger] = read_ledgers(written, [event for event in LOOP if not event["name"].startswith("phase:")])
    assert walls(ledger) == {NO_PHASE: 310}


def test_batches_of_a_server_are_its_phases_until_the_next_mark(written):
    trace = [
        *(note("step[EXTEND bs=2 toks=64]", 10, 20), launch(1, 12), kernel(1, 20, 30)),
        *(launch(2, 40), kernel(2, 60, 10, "sample")),
        *(note("step[DECODE bs=2]", 80, 20), launch(3, 85), kernel(3, 90, 20), launch(4, 140), kernel(4, 150, 5)),
    ]
    [ledger] = read_ledgers(written, trace)
    # Until 80 the host is in the first batch, and at 100 the last mark ends.
    assert walls(ledger) == {"prefill": 60, "decode": 30, NO_PHASE: 45}
    assert ledger.job_phases["prefill"]["compute"] == 40 * US


def test_a_thread_is_in_the_phase_of_its_annotation(written):
    trace = [
        *(note("phase:a", 0, 50), op("aten::mm", 10, 20)),
        *(note("phase:b", 60, 40), op("aten::mm", 70, 20), op("aten::add", 95, 15)),
    ]
    [ledger] = read_ledgers(written, trace)
    assert walls(ledger) == {"a": 40, "b": 40, NO_PHASE: 20}
    assert {name: lines["compute"] // US for name, lines in ledger.job_phases.items()} == {
        "a": 20,
        "b": 25,
        NO_PHASE: 10,
    }


def random_job(seed):
    """Phases with pauses between them, and kernels in order, each launched at some time before it starts."""
    draw = random.Random(seed)
    phases, at = [], draw.randrange(20)
    for _ in range(draw.randrange(1, 6)):
        length = draw.randrange(1, 60)
        phases.append((at, at + length, draw.choice(["a", "b", "c"])))
        at += length + draw.choice([0, 0, 7])
    kernels, launched, busy = [], 0, 0
    for _ in range(draw.randrange(1, 12)):
        launched += draw.randrange(1, 30)
        busy = max(busy, launched + 1) + draw.choice([0, 3, 25])
        length = draw.randrange(1, 20)
        kernels.append((launched, busy, busy + length))
        busy += length
    return phases, kernels


def walk(phases, kernels):
    def phase(time):
        return next((name for start, stop, name in phases if start <= time < stop), NO_PHASE)

    found = Counter()
    for time in range(kernels[0][1], kernels[-1][2]):
        launched, start, _ = next(one for one in kernels if time < one[2])
        found[phase(launched if time >= start else min(time, launched)), time >= start] += 1
    return found


def write_trace(phases, kernels):
    notes = [note(f"phase:{name}", start, stop - start) for start, stop, name in phases]
    calls = [launch(number, launched, 1) for number, (launched, _, _) in enumerate(kernels)]
    work = [kernel(number, start, stop - start) for number, (_, start, stop) in enumerate(kernels)]
    return [*notes, *calls, *work]


def test_random_jobs_against_a_walk_over_every_microsecond(written):
    jobs = [random_job(seed) for seed in range(24)]
    for job, ledger in zip(jobs, read_ledgers(written, *(write_trace(*job) for job in jobs)), strict=True):
        found = Counter()
        for name, lines in ledger.job_phases.items():
            for line, ns in lines.items():
                found[name, line in BUSY_LINES] += ns
        assert +found == Counter({key: us * US for key, us in walk(*job).items()})


def test_the_stored_total_is_the_sum_and_the_report_shows_it(written):
    parts = read_ledgers(written, LOOP, LOOP)
    assert derive(written.run)
    with Run.open(written.run) as run:
        total = total_of(run, scope(run, None))
        assert next(ledgers(run, scope(run, None))).job_phases == parts[0].job_phases
        answer = report(run).to_json()
        silent = report(run, by="phase")
    assert {name: lines.total() for name, lines in total.job_phases.items()} == {
        name: 2 * us * US for name, us in walls(parts[0]).items()
    }
    assert [(row["name"], row["ns"]) for row in answer["job_phases"]] == [
        *(("train", 320 * US), ("rollout", 200 * US), ("reward", 100 * US)),
    ]
    assert sum(row["lines"]["compute"] for row in answer["job_phases"]) == answer["ledger"]["lines"][0]["ns"]
    assert "job_phases" not in [block.name for block in silent.blocks]


def test_a_report_says_how_to_mark_phases(written):
    read_ledgers(written, [launch(1, 5), kernel(1, 10, 50)])
    with Run.open(written.run) as run:
        assert any("record_function" in text for text in report(run, by="job-phase").notes)
        assert report(run).to_json()["job_phases"] == []
