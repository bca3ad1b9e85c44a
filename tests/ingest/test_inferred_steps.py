"""Steps of traces that mark none: from a scheduler, the optimizer or kernels; the same on all ranks, or none."""

import pytest
from tests.ingest.test_kineto_golden import kernel, launch, note, op, step

from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.total import RunLedger
from lostflops.account.ledger.windows import WindowKind, inferred_steps
from lostflops.ingest import ingest
from lostflops.store.run import Run
from shared_data import TRACES, needs_traces

STEPS = "select step, start, stop from steps order by step"
STATS = "select what, effect, count from stats where what like '%step%' order by what"
SERVED = ["step[EXTEND bs=4 toks=16384]", "execute_context_1(888)_generation_0(0)", "decode[bs=2 tok=2]"]
LAYERS = ["norm", "gemm", "gelu", "gemm"]


def served(mark, starts):
    """A mark each 100 us that launches a kernel, and one kernel that is launched after it."""
    trace = []
    for number, ts in enumerate(starts):
        trace += [note(mark, ts, 40), launch(2 * number, ts + 5), kernel(2 * number, ts + 20, 30)]
        trace += [launch(2 * number + 1, ts + 60), kernel(2 * number + 1, ts + 70, 10, "sample")]
    return trace


def kernels(names, every=10, pause=0):
    """Kernels in this order, each with its launch; `pause` before each that is called `embed`."""
    trace, ts = [], 0
    for number, name in enumerate(names):
        ts += every + (pause if name == "embed" else 0)
        trace += [launch(number, ts), kernel(number, ts + 3, 5, name)]
    return trace


@pytest.mark.parametrize("mark", SERVED)
def test_a_step_runs_from_mark_to_mark(rows, traces, mark):
    assert rows(STEPS, served(mark, [0, 100, 200])) == [(0, 0, 100_000), (1, 100_000, 200_000), (2, 200_000, 240_000)]
    assert traces.ask(STATS) == [("steps_from_marks", "guessed", 3)]
    assert traces.ask("select step from events where name = 'sample' order by start") == [(0,), (1,), (None,)]


def test_a_mark_inside_a_mark_is_part_of_its_step(rows):
    trace = [
        note("step[DECODE bs=8]", 0, 50),
        note("step[DRAFT_EXTEND bs=8]", 10, 20),
        note("step[DECODE bs=8]", 60, 5),
    ]
    assert rows(STEPS, trace) == [(0, 0, 60_000), (1, 60_000, 65_000)]


def test_copies_alone_make_no_steps(rows):
    copies = [{**kernel(number, 10 * number, 5), "cat": "gpu_memcpy"} for number in range(20)]
    assert rows(STEPS, [*copies, *(launch(number, 10 * number) for number in range(20))]) == []


def test_recorded_steps_come_first(rows, traces):
    trace = [step(7, 0, 50), *served("step[DECODE bs=8]", [0, 20])]
    assert rows(STEPS, trace) == [(7, 0, 50_000)]
    assert traces.ask(STATS) == []


def test_an_annotation_that_merely_mentions_a_step_is_no_mark(rows):
    assert (
        rows(STEPS, [note("stepping", 0, 5), note("execute_model_late", 10, 5), op("step[DECODE bs=1]x", 20, 1)]) == []
    )


def test_steps_between_updates_of_two_optimizers(rows, traces):
    trace = []
    for ts in (0, 1000, 2000, 3000):
        trace += [note("Optimizer.step#AdamW.step", ts, 20), note("Optimizer.step#Muon.step", ts + 30, 20)]
    assert rows(STEPS, trace) == [(k, 50_000 + k * 1_000_000, 1_050_000 + k * 1_000_000) for k in range(3)]
    assert traces.ask(STATS) == [("steps_from_optimizer", "guessed", 3)]


def test_two_updates_make_no_steps(rows):
    assert rows(STEPS, [note("Optimizer.step#SGD.step", ts, 20) for ts in (0, 1000)]) == []


def test_kernels_that_repeat_as_a_whole(rows, traces):
    found = rows(
        "select step, stop - start from steps order by step", kernels(["embed", *LAYERS * 3, "head"] * 4, 10, 50)
    )
    assert found == [(k, 190_000) for k in range(3)]
    assert traces.ask(STATS) == [("steps_from_kernels", "guessed", 3)]
    assert traces.ask("select distinct name from events where step = 1 and kind = 'kernel' order by 1") == [
        ("embed",), ("gelu",), ("gemm",), ("head",), ("norm",)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        ["embed", *LAYERS * 30, "head"],
        ["embed", *LAYERS * 3, "head"] * 2,
        ["embed", *LAYERS * 3, "head", "embed", *LAYERS * 4, "head", "embed", *LAYERS * 5, "head", "embed"],
        [f"kernel {number % 7}{number % 11}" for number in range(60)],
    ],
    ids=["the layers of one pass", "twice", "of other lengths", "in no order"],
)
def test_what_does_not_clearly_repeat_has_no_steps(rows, traces, names):
    assert rows(STEPS, kernels(names)) == []
    assert traces.ask(STATS) == [("no_steps", "missing", 1)]


def test_the_ledger_accounts_for_the_same_time_as_without_steps(traces):
    trace = [*served("step[DECODE bs=8]", [0, 100, 200]), launch(90, 400), kernel(90, 500, 70, "after")]
    unmarked = [event for event in trace if not event["name"].startswith("step[")]
    totals = []
    for name, events in (("marked", trace), ("unmarked", unmarked)):
        out = traces.run.with_name(name)
        ingest([traces.write(f"{name}/rank0.json", events)], out, workers=1)
        with Run.open(out) as run:
            asked = scope(run, None)
            assert asked.kind is WindowKind.TRACE
            totals.append(RunLedger.of(ledgers(run, asked)).total_ns)
            assert bool(inferred_steps(run)) == (name == "marked")
    assert totals == [550_000, 550_000]


def ingested(traces, *by_rank):
    paths = [traces.write(f"rank{rank}.json", events) for rank, events in enumerate(by_rank)]
    ingest(paths, traces.run, workers=1)
    stats = "select rank, what, effect, count from stats where what like '%step%' order by rank"
    return traces.ask("select rank, step from steps order by all"), traces.ask(stats)


def test_ranks_that_agree_keep_their_steps(traces):
    steps, stats = ingested(traces, served(SERVED[0], [0, 100]), served(SERVED[0], [30, 120]))
    assert steps == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert stats == [(0, "steps_from_marks", "guessed", 2), (1, "steps_from_marks", "guessed", 2)]


@pytest.mark.parametrize(
    "other",
    [served(SERVED[0], [0, 100, 200]), served(SERVED[0], [100, 200]), kernels(["embed", "head"])],
    ids=["more steps", "one step later", "none"],
)
def test_ranks_that_disagree_have_no_steps(traces, other):
    steps, stats = ingested(traces, served(SERVED[0], [0, 100]), other)
    assert steps == []
    assert stats[0] == (0, "steps_disagree", "missing", 2)
    assert traces.ask("select count(*), count(step) from events where rank = 0") == [(10, 0)]


def test_a_rank_that_is_added_may_disagree(traces):
    ingest([traces.write("rank0.json", served(SERVED[0], [0, 100]))], traces.run, workers=1)
    assert traces.ask("select count(*) from steps") == [(2,)]
    ingest([traces.write("rank1.json", served(SERVED[0], [0, 100, 200]))], traces.run, workers=1)
    assert traces.ask("select count(*) from steps") == [(0,)]
    assert traces.ask("select count(step) from events") == [(0,)]


@needs_traces
@pytest.mark.parametrize(("batch", "ranks"), [("EXTEND", 8), ("DECODE", 2)])
def test_batches_that_a_server_recorded(tmp_path, batch, ranks):
    found = sorted((TRACES / "sgl-project__sglang").glob(f"*/*{batch}*.json.gz"))
    assert len(found) == ranks
    ingest(found, tmp_path / "run", workers=2)
    with Run.open(tmp_path / "run") as run:
        assert run.sql("select rank, count(*) from steps group by 1 order by 1").fetchall() == [
            (rank, 5) for rank in range(ranks)
        ]
        assert inferred_steps(run).startswith("Steps were inferred from the scheduler's marks")
