"""Op traces: one Parquet file, many ranks. Rows against hand-made files, and against the Parquet's own on real ones."""

import json
import os
import shutil

import duckdb
import pytest
from tests.ingest.test_ingest import event, ranges

from lostflops.core.errors import BrokenSource, RankConflict, UnknownFormat
from lostflops.core.limits import LARGEST_WORLD
from lostflops.explain.analyze.contents import contents
from lostflops.explain.analyze.report import report
from lostflops.ingest import ingest
from lostflops.ingest.formats.op_trace.reader import BASE_TIME
from lostflops.store.commit import RunWriter
from lostflops.store.manifest import load
from lostflops.store.run import Run
from shared_data import TRACES

COLUMNS = (
    "dp_rank TINYINT, stage TINYINT, rank SMALLINT, step BIGINT, optype VARCHAR, start_ts FLOAT, duration FLOAT, "
    "seq_id INTEGER, mc TINYINT, mb_id TINYINT, gmc SMALLINT"
)
PLACES = {0: (0, 0), 4: (1, 0), 8: (0, 1), 12: (1, 1)}
"""Data parallel rank and stage by rank: tensor parallel peers are left out, as in recorded files."""
MS = 1_000_000


def op(rank, step, optype, start, duration, microbatch=-1, seq=0):  # noqa: PLR0917 - a row
    """A row of the file; times in ms, halves of powers of two of a second so that 32 bits hold them."""
    dp_rank, stage = PLACES[rank]
    chunk = 0 if microbatch >= 0 else -1
    return (dp_rank, stage, rank, step, optype, start / 1000, duration / 1000, seq, chunk, microbatch, -1)


def step_ops(rank, step, late=0):
    """Two microbatches through two stages; `late` ms more before the optimizer's end."""
    first = PLACES[rank][1] == 0
    sent, received = ("forward-send", "backward-recv") if first else ("backward-send", "forward-recv")
    return [
        op(rank, step, "params-all-gather", 0, 125),
        op(rank, step, "forward-compute", 250, 250, 0),
        op(rank, step, sent, 500, 125),
        op(rank, step, received, 500, 125),
        op(rank, step, "forward-compute", 625, 250, 1),
        op(rank, step, "backward-compute", 875, 500, 0),
        op(rank, step, "backward-compute", 1375, 500, 1, 1),
        op(rank, step, "gc", 1875, 0),
        op(rank, step, "layernorm-grads-all-reduce", 1875, 125),
        op(rank, step, "embedding-grads-all-reduce", 2000, 125),
        op(rank, step, "grads-reduce-scatter", 2125, 125),
        op(rank, step, "optimizer-clip-main-grad", 2250, 125),
        op(rank, step, "optimizer", 2375, 125 + late),
    ]


def write(path, rows, columns=COLUMNS):
    connection = duckdb.connect()
    connection.execute(f"create table t ({columns})")
    connection.executemany(f"insert into t values ({', '.join('?' * len(rows[0]))})", rows)
    connection.execute(f"copy t to '{path}' (format parquet)")
    connection.close()
    return path


def whole(steps=(7, 8), late=0):
    return [row for step in steps for rank in PLACES for row in step_ops(rank, step, late if rank == 4 else 0)]


@pytest.fixture
def trace(traces):
    return write(traces.folder / "trace.parquet", whole())


COUNTS = "select rank, step, {name}, count(*) from {table} group by all order by all"


def counts_of(path):
    return duckdb.sql(COUNTS.format(name="optype", table=f"'{path}'")).fetchall()


def test_every_op_is_an_event_of_its_rank(traces, trace):
    done = ingest([trace], traces.run, workers=1)
    assert (done.ranks_added, done.events, done.bytes_read) == ((0, 4, 8, 12), 104, trace.stat().st_size)
    assert traces.ask(COUNTS.format(name="name", table="events")) == counts_of(trace)
    kinds = "select kind, list(distinct name order by name) from events group by kind order by kind"
    assert {kind: names for kind, names in traces.ask(kinds) if kind != "comm"} == {
        "kernel": ["backward-compute", "forward-compute", "optimizer"],
        "other": ["gc"],
    }
    assert traces.ask("select count(*), count(distinct (rank, event)) from events") == [(104, 104)]
    assert traces.ask("select distinct world_size, base_time, rank_source, events, host from ranks") == [
        (4, BASE_TIME, "recorded", 26, None)
    ]


def test_lanes_hold_one_thing_at_a_time(traces, trace):
    ingest([trace], traces.run, workers=1)
    lanes = (
        "select l.kind, l.name, list(distinct e.name order by e.name) from events e join lanes l using (rank, lane) "
    )
    assert traces.ask(lanes + "where rank = 0 group by l.kind, l.name, l.lane order by l.lane") == [
        ("stream", "compute", ["backward-compute", "forward-compute", "optimizer"]),
        ("stream", "backward-recv", ["backward-recv"]),
        ("stream", "embedding-grads-all-reduce", ["embedding-grads-all-reduce"]),
        ("stream", "forward-send", ["forward-send"]),
        ("stream", "grads-reduce-scatter", ["grads-reduce-scatter"]),
        ("stream", "layernorm-grads-all-reduce", ["layernorm-grads-all-reduce"]),
        ("stream", "optimizer-clip-main-grad", ["optimizer-clip-main-grad"]),
        ("stream", "params-all-gather", ["params-all-gather"]),
        ("thread", "host", ["gc"]),
    ]


def test_steps_are_laid_as_early_as_no_rank_overlaps(traces):
    """Rank 4 ends step 7 at 2.75 s, the others at 2.5 s; step 9 starts 0.125 s after its zero on all."""
    rows = whole((7,), late=250)
    rows += [op(rank, 9, "forward-compute", 125, 250, 0) for rank in PLACES]
    ingest([write(traces.folder / "trace.parquet", rows)], traces.run, workers=1)
    steps = (
        "select rank, step, start - {0}, stop - {0}, device_start - start, stop - device_stop from steps order by all"
    )
    assert traces.ask(steps.format(BASE_TIME)) == [
        (rank, step, first * MS, last * MS, 0, 0)
        for rank in PLACES
        for step, first, last in ((7, 0, 2750 if rank == 4 else 2500), (9, 2750, 3000))
    ]
    assert traces.ask("select count(*) from events e join steps s using (rank, step) where e.start < s.start") == [(0,)]


def test_a_rank_that_lacks_a_step_is_not_laid_over_itself(traces):
    rows = [op(0, 1, "optimizer", 0, 1000), op(4, 2, "optimizer", 0, 250), op(0, 3, "optimizer", 0, 125)]
    ingest([write(traces.folder / "trace.parquet", rows)], traces.run, workers=1)
    assert traces.ask(f"select rank, step, (start - {BASE_TIME}) // {MS} from steps order by rank, step") == [
        (0, 1, 0),
        (0, 3, 1000),
        (4, 2, 0),
    ]


def test_who_communicates_with_whom(traces, trace):
    ingest([trace], traces.run, workers=1)
    query = """select e.name, op, group_id, group_size, peer, order_source, list(ordinal order by c.start)
               from collectives c join events e using (rank, event) where rank = 8 group by all order by all"""
    assert traces.ask(query) == [
        ("backward-send", "send", "pp@0-8/8", 2, 0, "group ordinal", [0, 2]),
        ("embedding-grads-all-reduce", "all_reduce", "embedding@0-8/8", 2, None, "group ordinal", [0, 1]),
        ("forward-recv", "recv", "pp@0-8/8", 2, 0, "group ordinal", [1, 3]),
        ("grads-reduce-scatter", "reduce_scatter", "dp@8-12/4", 2, None, "group ordinal", [1, 3]),
        ("layernorm-grads-all-reduce", "all_reduce", None, None, None, "lane ordinal", [0, 1]),
        ("optimizer-clip-main-grad", "all_reduce", "world@0-12/4", 4, None, "group ordinal", [0, 1]),
        ("params-all-gather", "all_gather", "dp@8-12/4", 2, None, "group ordinal", [0, 2]),
    ]
    assert traces.ask("select distinct metadata, seq, bytes_in from collectives") == [("op_trace", None, None)]
    same = "c.start = e.start and c.stop = e.start + e.dur and c.step = e.step and c.lane = e.lane"
    assert traces.ask(f"select count(*), bool_and({same}) from collectives c join events e using (rank, event)") == [
        (7 * 4 * 2, True)
    ]
    assert traces.ask("select group_id, position, size from groups where rank = 12 order by all") == [
        ("dp@8-12/4", 1, 2),
        ("embedding@4-12/8", 1, 2),
        ("pp@4-12/8", 1, 2),
        ("world@0-12/4", 3, 4),
    ]


def test_an_interleaved_schedule_sends_from_the_last_stage_to_the_first(traces):
    rows = [op(8, 1, "forward-send", 0, 125), op(0, 1, "forward-recv", 0, 125)]
    ingest([write(traces.folder / "trace.parquet", rows)], traces.run, workers=1)
    assert traces.ask("select rank, op, peer from collectives order by rank") == [(0, "recv", 8), (8, "send", 0)]


def test_a_rank_between_the_ends_is_in_no_embedding_group(traces):
    """Some programs time the call on every stage."""
    rows = [(0, stage, stage, 1, "embedding-grads-all-reduce", 0.0, 0.5, 0, -1, -1, -1) for stage in range(3)]
    ingest([write(traces.folder / "trace.parquet", rows)], traces.run, workers=1)
    assert traces.ask("select rank, group_id from collectives order by rank") == [
        (0, "embedding@0-2/2"),
        (1, None),
        (2, "embedding@0-2/2"),
    ]


def test_ranks_at_one_place_have_neither_groups_nor_peers(traces):
    twin = [(0, 1, 9, *row[3:]) for row in step_ops(8, 7)]
    ingest([write(traces.folder / "trace.parquet", whole((7,)) + twin)], traces.run, workers=1)
    assert traces.ask("select distinct group_id, peer, order_source from collectives") == [(None, None, "lane ordinal")]
    assert traces.ask("select count(*) from groups") == [(0,)]


def test_passes(traces, trace):
    ingest([trace], traces.run, workers=1)
    query = f"""select microbatch, chunk, stage, direction, (start - {BASE_TIME}) // {MS}, (stop - start) // {MS}
                from passes where rank = 12 and step = 8 order by start"""
    assert traces.ask(query) == [
        (0, 0, 1, "forward", 2750, 250),
        (1, 0, 1, "forward", 3125, 250),
        (0, 0, 1, "backward", 3375, 500),
        (1, 0, 1, "backward", 3875, 500),
    ]


def test_what_is_said_about_the_file(traces):
    rows = [*whole((7, 10)), op(8, 7, "lunch", 0, 1), op(8, 7, "optimizer", 0, -1), op(8, 7, "gc", float("nan"), 1)]
    rows += [(None, *op(8, 7, "optimizer", 0, 1)[1:]), op(0, 7, "forward-compute", 375, 250, 2)]
    ingest([write(traces.folder / "trace.parquet", rows)], traces.run, workers=1)
    assert traces.ask("select rank, what, effect, count from stats where rank in (0, 8) order by all") == [
        (0, "collectives_without_group", "missing", 2),
        (0, "no_launches", "note", 25),
        (0, "overlapping_ops", "note", 1),
        (0, "ranks_left_out", "note", 9),
        (0, "steps_joined", "note", 2),
        (0, "steps_sampled", "note", 2),
        (8, "collectives_without_group", "missing", 2),
        (8, "no_launches", "note", 24),
        (8, "steps_joined", "note", 2),
        (8, "steps_sampled", "note", 2),
        (8, "unknown_optypes", "note", 1),
        (8, "unreadable_ops", "dropped", 3),
    ]
    assert traces.ask("select kind from events where name = 'lunch'") == [("other",)]


def test_the_same_file_again_changes_nothing(traces, trace):
    ingest([trace], traces.run, workers=1)
    before = load(traces.run)
    for path in (trace, shutil.copy(trace, traces.folder / "copy.parquet")):
        done = ingest([path], traces.run, workers=1)
        assert (done.ranks_added, done.ranks_replaced, done.ranks_unchanged) == ((), (), (0, 4, 8, 12))
    os.utime(trace, ns=(1, 1))
    assert ingest([traces.folder], traces.run, workers=1).ranks_unchanged == (0, 4, 8, 12)
    assert load(traces.run) == before


def test_a_changed_file_replaces_all_its_ranks(traces, trace):
    ingest([trace], traces.run, workers=1)
    kept = [row for row in whole((30, 31, 32)) if row[2] != 8]
    write(trace, kept)
    done = ingest([trace], traces.run, workers=1)
    assert (done.ranks_added, done.ranks_replaced) == ((), (0, 4, 12))
    assert traces.ask(COUNTS.format(name="name", table="events")) == counts_of(trace)
    assert traces.ask("select rank from ranks order by rank") == [(0,), (4,), (12,)]


def test_one_rank_is_replaced_and_the_others_stay(traces, trace):
    ingest([trace], traces.run, workers=1)
    before = {rank: traces.ask(f"select * from events where rank = {rank} order by event") for rank in PLACES}
    one = write(traces.folder / "one.parquet", step_ops(8, 99))
    with pytest.raises(RankConflict, match="rank 8"):
        ingest([one], traces.run, workers=1)
    assert ingest([one], traces.run, workers=1, replace=True).ranks_replaced == (8,)
    assert traces.ask("select distinct step from events where rank = 8") == [(99,)]
    for rank in (0, 4, 12):
        assert traces.ask(f"select * from events where rank = {rank} order by event") == before[rank]
    assert ingest([trace, one], traces.run, workers=1).ranks_unchanged == (0, 4, 8, 12)


@pytest.mark.parametrize("op_trace_first", [True, False])
def test_a_rank_has_one_timeline_whatever_the_format(traces, trace, op_trace_first):
    kineto = traces.write("rank4.json", [event("a")])
    first, second = (trace, kineto) if op_trace_first else (kineto, trace)
    ingest([first], traces.run, workers=1)
    with pytest.raises(RankConflict, match="rank 4"):
        ingest([second], traces.run, workers=1)
    ingest([second], traces.run, workers=1, replace=True)
    assert traces.ask("select formats, events from ranks where rank = 4") == [
        ("kineto", 1) if op_trace_first else ("op_trace", 26)
    ]
    assert traces.ask("select count(*) from events where rank = 4") == [(1 if op_trace_first else 26,)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_folder_with_traces_of_several_formats(traces, trace, workers):
    """A trace that does not tell its rank takes a free one; foreign Parquet is left out and named."""
    traces.write("nameless.json", [event("a")])
    traces.write("rank3.json", [event("b")])
    write(traces.folder / "shard.parquet", [(1, 2)], "text INTEGER, label INTEGER")
    done = ingest([traces.folder], traces.run, workers=workers)
    assert [(os.path.basename(path), reason) for path, reason in done.skipped] == [  # noqa: PTH119
        ("shard.parquet", "no reader recognises it")
    ]
    assert traces.ask("select rank, formats from ranks order by rank") == [
        (0, "op_trace"), (1, "kineto"), (3, "kineto"), (4, "op_trace"), (8, "op_trace"), (12, "op_trace"),
    ]  # fmt: skip


def test_data_files_of_a_run_are_no_traces(traces, trace):
    ingest([trace], traces.run, workers=1)
    data = sorted(traces.run.rglob("*.parquet"))
    assert data
    for path in data:
        with pytest.raises(UnknownFormat):
            ingest([path], traces.run.with_name("other"), workers=1)
    shutil.copytree(traces.run, traces.folder / "run")
    done = ingest([traces.folder], traces.run, workers=1)
    assert (done.ranks_unchanged, done.skipped) == ((0, 4, 8, 12), ())


@pytest.mark.parametrize("kept", [4, 100, -1, -20])
def test_a_truncated_file_is_refused(traces, trace, kept):
    half = traces.folder / "half.parquet"
    half.write_bytes(trace.read_bytes()[:kept])
    with pytest.raises(BrokenSource, match=r"half\.parquet is not a complete Parquet file"):
        ingest([half], traces.run, workers=1)
    assert not traces.run.exists()
    done = ingest([traces.folder], traces.run, workers=1)
    assert done.ranks_added == (0, 4, 8, 12)
    assert ["half.parquet is not a complete" in reason for _, reason in done.skipped] == [True]


def test_damage_in_the_middle_leaves_no_rows_behind(traces, trace):
    """Whatever column is hit, nothing of the file is in the run, or all of it is."""
    data = trace.read_bytes()
    for at in range(4, len(data) - 8, 397):
        run = traces.run.with_name(f"run-{at}")
        trace.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            ingest([trace], run, workers=1)
        except (BrokenSource, UnknownFormat):
            assert not run.exists()
        else:
            with Run.open(run) as opened:
                query = "select count(*) from events where rank not in (select rank from ranks)"
                assert opened.sql(query).fetchall() == [(0,)]


def test_a_file_without_an_op_that_can_be_read_is_refused(traces):
    path = write(traces.folder / "trace.parquet", [op(0, 1, "optimizer", 0, -1)])
    with pytest.raises(BrokenSource, match="has no op"):
        ingest([path], traces.run, workers=1)


def test_odd_numbers_cost_neither_memory_nor_order(traces):
    columns = COLUMNS.replace("SMALLINT", "BIGINT", 1)
    rows = [(0, 0, LARGEST_WORLD - 1, *op(0, 2**31 - 1, "optimizer", 0, 1000)[3:]), op(0, 1, "optimizer", 9e7, 9e7)]
    rows += [op(0, 2, "optimizer", 1e12, 1), (0, 0, 2**40, *op(0, 3, "optimizer", 0, 1)[3:])]
    rows += [(0, 0, LARGEST_WORLD, *op(0, 3, "optimizer", 0, 1)[3:])]
    ingest([write(traces.folder / "trace.parquet", rows, columns)], traces.run, workers=1)
    assert traces.ask(f"select rank, step, (start - {BASE_TIME}) // {MS} from events order by rank") == [
        (0, 1, 90_000_000),
        (LARGEST_WORLD - 1, 2**31 - 1, 0),
    ]
    assert traces.ask("select count from stats where what = 'unreadable_ops'") == [(3,)]


def test_a_rank_at_two_places_is_refused(traces):
    path = write(traces.folder / "trace.parquet", [op(0, 1, "optimizer", 0, 1), (1, *op(0, 1, "gc", 0, 1)[1:])])
    with pytest.raises(BrokenSource, match="rank 0 has several places"):
        ingest([path], traces.run, workers=1)


def test_an_ingest_that_dies_changes_nothing(traces, trace, monkeypatch):
    ingest([trace], traces.run, workers=1)
    before = traces.tables()
    write(trace, whole((40,)))

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            ingest([trace], traces.run, workers=1)
    assert traces.tables() == before
    ingest([trace], traces.run, workers=1)
    assert traces.ask("select distinct step from events") == [(40,)]


def test_ranges_of_ranks_make_no_difference(traces, trace, monkeypatch):
    traces.write("rank1.json", [event("b")])
    ingest([traces.folder], traces.run, workers=1)
    single = traces.tables()
    traces.run = traces.run.with_name("ranges")
    ranges(monkeypatch, most=2, per_file=3)
    ingest([traces.folder], traces.run, workers=1)
    assert traces.tables() == single


def test_the_analyses_read_it(traces, trace):
    """Per rank and step: 1.625 s of compute, 0.75 s of communication, 0.125 s before the first pass idle."""
    ingest([trace], traces.run, workers=1)
    with Run.open(traces.run) as run:
        found, held = report(run).to_json(), contents(run).to_json()
    assert {line["line"]: line["ns"] // MS for line in found["ledger"]["lines"] if line["ns"]} == {
        "compute": 8 * 1625,
        "comm.transfer": 8 * 750,
        "unexplained": 8 * 125,
    }
    assert any("this trace format has no launches" in note for note in found["notes"])
    assert held["held"]["source_bytes"] == trace.stat().st_size


REAL = TRACES / "ByteDance-Seed__StragglerAnalysis"
real = pytest.mark.skipif(not REAL.exists(), reason="no real op traces beside the checkout")


@real
@pytest.mark.parametrize("name", ["AR", "ST", "SE"])
def test_recorded_files(traces, name):
    path = REAL / f"trace-{name}.parquet"
    ingest([path], traces.run, workers=1)
    assert traces.ask(COUNTS.format(name="name", table="events")) == counts_of(path)
    own = f"(select * from '{path}' where optype in ('forward-compute', 'backward-compute'))"
    passes = "select rank, step, {} , {}, {}, stage, sum({})::bigint from {} group by all order by all"
    expected = passes.format("optype", "mb_id", "mc", "round(duration::double * 1e9)", own)
    told = passes.format("direction || '-compute'", "microbatch", "chunk", "stop - start", "passes")
    assert traces.ask(told) == duckdb.sql(expected).fetchall()
    outside = "e.start < s.start or e.start + e.dur > s.stop"
    assert traces.ask(f"select count(*) from events e join steps s using (rank, step) where {outside}") == [(0,)]
    assert traces.ask("select count(*) from (select start < lag(stop) over (partition by rank order by step) as bad "
                      "from steps) where bad") == [(0,)]  # fmt: skip
    published = json.loads((REAL / f"result-{name}.json").read_text())["step_t_base"]
    zeros = dict(_zeros(traces, path))
    for step, stop in traces.ask("select step, max(stop) from steps group by step"):
        assert stop - zeros[step] == pytest.approx(published[str(step)] * 1e9, abs=10_000)


def _zeros(traces, path):
    """Where the zero of each step was laid: one for all ranks and ops."""
    laid = "select rank, step, name, list(start order by start) from events group by all order by all"
    recorded = f"""select rank, step, optype, list(round(start_ts::double * 1e9)::bigint order by start_ts)
                   from '{path}' group by all order by all"""
    for told, own in zip(traces.ask(laid), duckdb.sql(recorded).fetchall(), strict=True):
        assert told[:3] == own[:3]
        (zero,) = {start - since for start, since in zip(told[3], own[3], strict=True)}
        yield told[1], zero


@real
def test_members_of_a_group_end_together(traces):
    """What the groups rest on: on stages of DP 4 the reduce-scatter begins seconds apart and ends within 3 ms."""
    ingest([REAL / "trace-AR.parquet"], traces.run, workers=1)
    query = """select op, max(ends) // 1000000 from (
                   select op, group_id, max(stop) - min(stop) as ends from collectives
                   where group_id is not null and op in ('all_reduce', 'reduce_scatter', 'all_gather')
                   group by op, group_id, ordinal) group by op order by op"""
    spread = dict(traces.ask(query))
    assert spread["reduce_scatter"] < 4
    assert spread["all_reduce"] < 12


@real
def test_transfers_of_neighbours_match_one_to_one(traces):
    ingest([REAL / "trace-ST.parquet"], traces.run, workers=1)
    query = """with p2p as (
                   select *, row_number() over (partition by rank, op, peer order by start) as n
                   from collectives where op in ('send', 'recv'))
               select count(*) from p2p s join p2p r
               on s.op = 'send' and r.op = 'recv' and s.peer = r.rank and r.peer = s.rank and s.n = r.n"""
    assert traces.ask(query) == traces.ask("select count(*) from collectives where op = 'send'") == [(2 * 768,)]
