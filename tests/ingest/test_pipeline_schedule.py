"""Measured pipeline schedules: passes of each stage, against hand-made files and on recorded ones."""

import json

import pytest

from lostflops.core.errors import BrokenSource, UnknownFormat
from lostflops.explain.analyze.report import report
from lostflops.ingest import ingest
from lostflops.ingest.formats.pipeline_schedule import BASE_TIME, ScheduleSizes, interleaved_order
from lostflops.store.run import Run
from shared_data import TRACES

SIZES = {"world_size": 2, "dp_size": 1, "tp_size": 1, "pp_size": 2, "vp_size": 1, "num_mbs": 2, "train_iters": 2}
FIRST = {
    "total": 90.5,
    "memory": 1.5,
    "fwd_start": [0, 10],
    "fwd_end": [10, 20],
    "bwd_start": [50, 70],
    "bwd_end": [70, 90],
}
LAST = {
    "total": 70,
    "memory": 1.5,
    "fwd_start": [10, 40],
    "fwd_end": [20, 50],
    "bwd_start": [20, 50],
    "bwd_end": [40, 70],
}


@pytest.fixture
def job(traces):
    """Two stages, two iterations."""
    write(traces, 0, {"1": FIRST, "2": FIRST})
    write(traces, 1, {"1": LAST, "2": LAST})
    (traces.folder / "config.json").write_text(json.dumps(SIZES))
    return traces.folder


def write(traces, stage, iterations):
    path = traces.folder / f"pp_rank_{stage}.json"
    path.write_text(json.dumps(iterations))
    return path


PASSES = f"""select step, microbatch, chunk, stage, direction, (start - {BASE_TIME}) / 1e6, (stop - start) / 1e6
             from passes where rank = %d order by start"""


def test_passes_steps_and_events(traces, job):
    done = ingest([job], traces.run, workers=1)
    assert (done.ranks_added, done.events) == ((0, 1), 16)
    assert [reason for path, reason in done.skipped if path.endswith("config.json")] == ["no reader recognises it"]
    assert traces.ask(PASSES % 1) == [
        (1, 0, 0, 1, "forward", 10, 10),
        (1, 0, 0, 1, "backward", 20, 20),
        (1, 1, 0, 1, "forward", 40, 10),
        (1, 1, 0, 1, "backward", 50, 20),
        (2, 0, 0, 1, "forward", 100.5, 10),
        (2, 0, 0, 1, "backward", 110.5, 20),
        (2, 1, 0, 1, "forward", 130.5, 10),
        (2, 1, 0, 1, "backward", 140.5, 20),
    ]
    edges = f"select rank, step, (start - {BASE_TIME}) / 1e6, (stop - {BASE_TIME}) / 1e6 from steps order by all"
    assert traces.ask(edges) == [(0, 1, 0, 90.5), (0, 2, 90.5, 181), (1, 1, 0, 70), (1, 2, 90.5, 160.5)]
    assert traces.ask("select count(*) from events where kind <> 'kernel' or lane <> 0") == [(0,)]
    told = "select rank, step, direction, start, stop - start from passes order by all"
    assert traces.ask("select rank, step, name, start, dur from events order by all") == traces.ask(told)
    assert traces.ask("select distinct world_size, host, rank_source, formats from ranks") == [
        (2, None, "file name", "pipeline_schedule")
    ]
    assert traces.ask("select kind, device, name from lanes") == [("stream", 0, "compute")] * 2


def test_the_wait_after_the_last_pass_is_in_the_ledger(traces, job):
    """The last stage computes for 60 of the first iteration's 90.5 ms, though its own record ends after 70."""
    ingest([job], traces.run, workers=1)
    with Run.open(traces.run) as run:
        found = report(run, steps=[1]).to_json()["ledger"]["lines"]
    assert {line["line"]: line["ns"] / 1e6 for line in found if line["ns"]} == {"compute": 120, "unexplained": 61}


def test_a_file_on_its_own_is_laid_by_its_own_totals(traces):
    ingest([write(traces, 1, {"3": LAST, "9": LAST})], traces.run, workers=1)
    assert traces.ask(f"select step, (start - {BASE_TIME}) / 1e6 from steps order by step") == [(3, 0), (9, 70)]
    assert traces.ask("select distinct microbatch, chunk from passes") == [(None, None)]
    assert traces.ask("select what, effect, count from stats order by what") == [
        ("microbatches_unknown", "missing", 8),
        ("no_launches", "note", 8),
        ("steps_joined", "note", 2),
    ]


def test_interleaved_passes_are_numbered_in_the_order_of_megatron():
    sizes = ScheduleSizes(pp_size=2, num_mbs=3, vp_size=2)
    forward, backward = (interleaved_order(6, sizes, is_backward=way) for way in (False, True))
    assert [(m, c) for m, c in zip(*map(list, forward), strict=True)] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert [(m, c) for m, c in zip(*map(list, backward), strict=True)] == [
        (0, 1),
        (1, 1),
        (0, 0),
        (1, 0),
        (2, 1),
        (2, 0),
    ]


def test_doubts_are_counted(traces, job):
    chunked = {name: times * 2 if isinstance(times, list) else times for name, times in LAST.items()}
    broken = FIRST | {"fwd_end": [10], "bwd_end": [40, 90]}
    (job / "config.json").write_text(json.dumps(SIZES | {"vp_size": 2, "world_size": 8}))
    write(traces, 1, {"1": chunked})
    write(traces, 0, {"1": broken})
    ingest([job], traces.run, workers=1)
    assert traces.ask("select what, effect, count from stats where rank = 1 order by what") == [
        ("no_launches", "note", 8),
        ("order_guessed", "guessed", 8),
        ("rank_is_stage", "guessed", 1),
        ("steps_joined", "note", 1),
    ]
    assert traces.ask("select count from stats where rank = 0 and what = 'unreadable_passes'") == [(2,)]
    assert traces.ask("select name, dur / 1e6 from events where rank = 0 order by name") == [
        ("backward", 20),
        ("forward", 10),
    ]


def test_again_is_unchanged_and_a_changed_stage_is_replaced(traces, job):
    ingest([job], traces.run, workers=1)
    assert ingest([job], traces.run, workers=1).ranks_unchanged == (0, 1)
    write(traces, 1, {"5": LAST})
    done = ingest([job], traces.run, workers=1)
    assert (done.ranks_replaced, done.ranks_unchanged) == ((1,), (0,))
    assert traces.ask("select rank, step from steps order by all") == [(0, 1), (0, 2), (1, 5)]


@pytest.mark.parametrize(
    "text",
    [
        '{"1": {"total": 1, "fwd_start": [0',
        '{"1": {"total": 1, "fwd_start": [0]}}',
        '{"1": {"total": "x", "fwd_start": [], "fwd_end": [], "bwd_start": [], "bwd_end": []}}',
        '{"1": {"total": -1, "fwd_start": [], "fwd_end": [], "bwd_start": [], "bwd_end": []}}',
    ],
)
def test_a_file_that_cannot_be_read_is_refused(traces, text):
    path = traces.folder / "pp_rank_0.json"
    path.write_text(text)
    with pytest.raises(BrokenSource, match=r"pp_rank_0\.json"):
        ingest([path], traces.run, workers=1)
    assert not traces.run.exists()


def test_other_json_is_not_taken_for_a_schedule(traces):
    path = traces.folder / "pp_rank_0.json"
    path.write_text('{"1": {"total": 1, "loss": 2}}')
    with pytest.raises(UnknownFormat):
        ingest([path], traces.run, workers=1)


REAL = TRACES / "AMD-AGI__Primus" / "pp_vis" / "gpu8_layer64_gbs16"


@pytest.mark.skipif(not REAL.exists(), reason="no real schedules beside the checkout")
@pytest.mark.parametrize(("name", "chunks"), [("pp8", 1), ("pp8_vpp2", 2)])
def test_recorded_schedules(traces, name, chunks):
    """Each chunk of each microbatch once in each direction; what a stage hands on starts no earlier on the next."""
    ingest([REAL / name], traces.run, workers=1)
    assert traces.ask("select rank, step, count(*) from passes group by all order by all") == [
        (rank, step, 2 * 16 * chunks) for rank in range(8) for step in range(1, 21)
    ]
    assert traces.ask(
        "select count(distinct (rank, step, microbatch, chunk, direction)), max(microbatch), max(chunk) from passes"
    ) == [(8 * 20 * 2 * 16 * chunks, 15, chunks - 1)]
    handed_on = """select count(*), min(b.start - a.stop) > -2e6 from passes a join passes b
                   using (step, microbatch, direction)
                   where a.chunk * 8 + a.stage + if(direction = 'forward', 1, -1) = b.chunk * 8 + b.stage"""
    assert traces.ask(handed_on) == [(20 * 16 * 2 * (8 * chunks - 1), True)]
    for rank in range(8):
        one = json.loads((REAL / name / f"pp_rank_{rank}.json").read_text())["7"]
        spent = sum(one["fwd_end"]) - sum(one["fwd_start"]) + sum(one["bwd_end"]) - sum(one["bwd_start"])
        query = "select sum(e.dur), any_value(s.stop - s.start) from events e join steps s using (rank, step) "
        ((ns, wall),) = traces.ask(query + f"where rank = {rank} and step = 7")
        assert ns == pytest.approx(spent * 1e6, abs=100)
        assert wall == round(one["total"] * 1e6)
