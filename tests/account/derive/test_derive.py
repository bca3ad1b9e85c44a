"""Accounts of ranks are made once, stored in the run, and made again exactly where something changed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from lostflops.account.derive import derive as derivation
from lostflops.account.derive.derive import derive, needs_accounts, with_accounts
from lostflops.account.ledger.accounts import LEDGER_WITH_KERNELS
from lostflops.account.ledger.answers import ledgers
from lostflops.account.ledger.by_rank import by_rank
from lostflops.account.ledger.from_rows import has_accounts, has_stretches, stored_kernels, stored_ledgers
from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.record import records
from lostflops.account.ledger.scope import scope
from lostflops.account.ledger.stored_total import stored_total
from lostflops.account.ledger.stretches import cut_stretches
from lostflops.account.ledger.strips import whole
from lostflops.account.ledger.total import RunLedger
from lostflops.explain.analyze.timeline import timeline
from lostflops.ingest import ingest
from lostflops.store import derived
from lostflops.store.commit import RunWriter
from lostflops.store.derived import add_tables, data_digest
from lostflops.store.manifest import load, save
from lostflops.store.run import Run
from lostflops.store.tables import ACCOUNTS, TIMELINE, Column, TableSchema
from lostflops.testing import Straggler, SyntheticCluster, store
from shared_data import TRACES, needs_traces


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A run of four ranks that nobody has asked about."""
    return store(SyntheticCluster(ranks=4, steps=3).generate(), tmp_path_factory.mktemp("base") / "run")


@pytest.fixture
def run(base, tmp_path):
    return Path(shutil.copytree(base, tmp_path / "run"))


def plain(value):
    """Return an account as plain values that can be compared; an empty part of a ledger is as good as none."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items() if one != {}}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value


def compare_stored_with_computed(folder):
    with Run.open(folder) as opened:
        asked = scope(opened, None)
        assert has_accounts(opened, asked)
        stored = list(zip(stored_ledgers(opened, asked.ranks), stored_kernels(opened, asked.ranks), strict=True))
        computed = list(by_rank(LEDGER_WITH_KERNELS, opened, asked))
        assert plain(stored) == plain(computed)
        # Of equal times the first is named, so the order counts as well.
        for (one, kernels), (other, known) in zip(stored, computed, strict=True):
            assert list(kernels) == list(known)
            for name in ("phases", "job_phases", "annotations", "modules", "groups", "together"):
                assert list(getattr(one, name)) == list(getattr(other, name))
        compare_stretches(opened)


def compare_stretches(opened):
    assert has_stretches(opened, opened.ranks)
    for record in records(opened, opened.ranks):
        recorded = whole(record)
        own = cut_stretches(record, recorded)
        names = [LINES[code - 1] for code in own.line.tolist()]
        late = [rank if rank >= 0 else None for rank in own.late.tolist()]
        computed = list(zip(own.start.tolist(), own.stop.tolist(), names, late, strict=True))
        stored = opened.rows(f"select start, stop, line, late_rank from stretches where rank = {record.rank}")
        assert stored == computed
        assert (own.start < own.stop).all()
        assert (own.stop[:-1] <= own.start[1:]).all()
        assert sum(stop - start for start, stop, *_ in stored) == recorded.window.wall
    # Cut at the edges of steps, they are the ledger of these steps, and their waits are those of table `waits`.
    inside = "from stretches a join spans b on a.rank = b.rank and a.start < b.stop and a.stop > b.start"
    ns = "sum(least(a.stop, b.stop) - greatest(a.start, b.start))::bigint"
    split = "split = if(scope = 'trace', 'line', 'step') and ns > 0"
    by_step = opened.rows(f"select a.rank, step, line, {ns} {inside} group by all order by all")
    assert by_step == opened.rows(
        f"select rank, step, line, ns from ledger join accounts using (rank) where {split} order by all"
    )
    by_late = opened.rows(f"select a.rank, late_rank, {ns} {inside} where late_rank >= 0 group by all order by all")
    assert by_late == opened.rows("select rank, late_rank, sum(ns)::bigint from waits group by all order by all")


def compare_sums(folder):
    with Run.open(folder) as opened:
        asked = scope(opened, None)
        queried, added = stored_total(opened, asked.ranks), RunLedger.of(ledgers(opened, asked))
        some = asked.ranks[1:3]
        assert plain(stored_total(opened, some)) == plain(RunLedger.of(ledgers(opened, replace(asked, ranks=some))))
    assert plain(queried) == plain(added)
    for name in ("parts", "phases", "job_phases", "annotations", "modules", "samples"):
        one, other = getattr(queried, name), {key: sums for key, sums in getattr(added, name).items() if sums}
        assert [(key, sums.most_common()) for key, sums in one.items()] == [
            (key, sums.most_common()) for key, sums in other.items()
        ]
    assert list(queried.work.efforts) == list(added.work.efforts)


def rows(folder, query):
    with Run.open(folder) as opened:
        return opened.rows(query)


def test_what_is_stored_is_what_is_computed(run):
    assert derive(run)
    compare_stored_with_computed(run)
    compare_sums(run)
    assert not derive(run), "nothing is left to do"


def test_stretches_of_a_pipeline_say_who_was_late(tmp_path):
    cluster = SyntheticCluster(ranks=4, pipeline_parallel=2, steps=2, stragglers=(Straggler(1, "slow_kernels", 1.6),))
    folder = store(cluster.generate(), tmp_path / "run")
    derive(folder)
    compare_stored_with_computed(folder)
    waits = rows(folder, "select line, late_rank, sum(stop - start) from stretches where late_rank >= 0 group by all")
    assert {line for line, _, _ in waits} == {"comm.wait", "comm.bubble"}
    assert max(waits, key=lambda row: row[2])[1] == 1


def test_files_that_wait_for_the_lock_need_no_memory(run, monkeypatch):
    monkeypatch.setattr(derivation, "_MOST_IN_MEMORY", 10)
    assert derive(run)
    compare_stored_with_computed(run)


@needs_traces
@pytest.mark.parametrize(
    "source",
    [
        "KellerJordan__modded-nanogpt/2025-12-11*",
        "facebookresearch__HolisticTraceAnalysis/critical_path__alexnet*",
        "AMD-AGI__TraceLens/mi300_resnet_act_checkpoint*",
        "meta-pytorch__torchrec/sst_sleep_pl_dense_after_backward_2",
    ],
)
@pytest.mark.few(1)
def test_accounts_of_real_traces_are_stored_whole(source, tmp_path):
    found = sorted(TRACES.glob(source))
    assert found
    ingest(found, tmp_path / "run", workers=1)
    derive(tmp_path / "run")
    compare_stored_with_computed(tmp_path / "run")
    compare_sums(tmp_path / "run")


def test_every_split_of_the_ledger_sums_to_the_time_of_the_rank(run):
    derive(run)
    walls = dict(rows(run, "select rank, wall from accounts"))
    assert len(walls) == 4
    sums = rows(run, "select rank, split, sum(ns)::bigint from ledger where split <> 'detail' group by all")
    assert {split for _, split, _ in sums} == {"line", "step", "phase", "job_phase", "annotation", "module"}
    assert all(ns == walls[rank] for rank, _, ns in sums)
    spans = rows(run, "select rank, sum(stop - start)::bigint from spans group by rank")
    assert dict(spans) == walls


def test_the_timeline_is_stored_as_it_is_computed(run):
    with Run.open(run) as opened:
        before = timeline(opened).to_json()
    derive(run)
    with Run.open(run) as opened:
        assert rows(run, "select count(*) from timeline") == [(4,)]
        assert timeline(opened).to_json() == before


def test_the_table_of_the_timeline_names_the_lines_in_their_order():
    [lines] = [column.doc for column in TIMELINE.columns if column.name == "lines"]
    assert re.findall(r"(\d+) `([a-z.]+)`", lines) == [(str(code), line) for code, line in enumerate(LINES, 1)]


def test_a_question_reads_no_events(run, monkeypatch):
    derive(run)

    with Run.open(run) as opened:
        asked = scope(opened, None)
        monkeypatch.setattr("lostflops.account.ledger.by_rank.records", pytest.fail)
        assert {tuple(one.lines) for one in ledgers(opened, asked)} == {LINES}


def test_opening_accounts_for_a_run_that_was_never_asked(run):
    with Run.open(run) as opened:
        assert needs_accounts(opened)
    with with_accounts(Run.open(run)) as opened:
        assert not needs_accounts(opened)
        assert has_accounts(opened, scope(opened, None))
    assert load(run).generation == 2


def test_a_run_that_somebody_writes_to_is_answered_from_its_events(run):
    with RunWriter(run), with_accounts(Run.open(run)) as opened:
        assert needs_accounts(opened)
        assert len(list(ledgers(opened, scope(opened, None)))) == 4
    assert load(run).generation == 1


def test_other_code_makes_accounts_again(run, monkeypatch):
    derive(run)
    for module in (derived, derivation, sys.modules[has_accounts.__module__]):
        monkeypatch.setattr(module, "account_code", lambda: "of tomorrow")
    with Run.open(run) as opened:
        assert needs_accounts(opened)
        assert not has_accounts(opened, scope(opened, None))
    assert derive(run)
    assert rows(run, "select distinct code from accounts") == [("of tomorrow",)]
    assert rows(run, "select count(*) from accounts") == [(4,)]


def test_derived_tables_of_an_older_version_do_not_break_a_run(run):
    """Their columns may have other names: what is not declared any more is not read."""
    older = TableSchema("accounts", "", (*ACCOUNTS.columns[:1], Column("rules", "VARCHAR", "")))
    told = TableSchema("diagnosis", "", (Column("verdict", "VARCHAR", ""),))
    add_tables(run, data_digest(load(run)), {older: {"rank": [0], "rules": ["x"]}, told: {"verdict": ["slow"]}})
    manifest = load(run)
    manifest.columns |= {one.name: list(one.column_names()) for one in (older, told)}
    save(run, manifest)
    assert rows(run, "select rank, code from accounts") == [(0, None)]
    assert derive(run)
    compare_stored_with_computed(run)
    assert rows(run, "select count(*) from diagnosis") == [(0,)]
    ingest(write(SyntheticCluster(ranks=5, steps=3), run.parent / "more")[4:], run, workers=1)
    assert rows(run, "select count(*) from diagnosis") == [(0,)]


def test_a_changed_clock_makes_only_that_account_again(run):
    derive(run)
    hosts = dict.fromkeys(range(4))
    files = load(run).files
    before = derived.digest_inputs(files, lambda file: run / file.path, hosts)
    assert before == dict(rows(run, "select rank, inputs from accounts"))
    shift = "select * replace (if(rank = 2, correction + 7, correction) as correction) from clocks"
    clocks = run / files["clocks"][0].path
    with Run.open(run) as opened:
        assert len(opened.rows(shift)) == 4
    with duckdb.connect() as connection:
        connection.execute(f"create table clocks as select * from read_parquet('{clocks}')")
        connection.execute(f"copy ({shift}) to '{clocks}' (format parquet)")
    after = derived.digest_inputs(files, lambda file: run / file.path, hosts)
    assert {rank for rank in hosts if after[rank] != before[rank]} == {2}


def write(cluster, folder):
    return sorted(cluster.generate().traces.write(folder))


@pytest.fixture
def apart(tmp_path):
    """Traces of four ranks in files of their own, and the run of the first three."""
    files = write(SyntheticCluster(ranks=4, steps=2), tmp_path / "traces")
    ingest(files[:3], tmp_path / "run", workers=1)
    derive(tmp_path / "run")
    return files, tmp_path / "run"


def test_an_added_rank_changes_only_what_depends_on_it(apart):
    files, run = apart
    before = dict(rows(run, "select rank, inputs from accounts"))
    ingest(files, run, workers=1)
    kept = dict(rows(run, "select rank, inputs from accounts"))
    assert set(kept) <= {0, 1, 2}
    assert all(before[rank] == digest for rank, digest in kept.items())
    assert rows(run, "select count(*) from timeline") == [(0,)], "the timeline of all ranks is another one"
    with Run.open(run) as opened:
        assert needs_accounts(opened)
    derive(run)
    assert rows(run, "select count(*) from accounts") == [(4,)]
    compare_stored_with_computed(run)


def test_the_same_traces_again_change_nothing(apart):
    files, run = apart
    before = (run / "run.json").read_bytes()
    ingest(files[:3], run, workers=1)
    assert (run / "run.json").read_bytes() == before


def test_a_replaced_rank_is_accounted_for_again(apart, tmp_path):
    files, run = apart
    before = dict(rows(run, "select rank, wall from accounts"))
    other = write(SyntheticCluster(ranks=4, steps=3, seed=5), tmp_path / "others")
    shutil.copy(other[1], files[1])
    ingest(files[:3], run, workers=1)
    assert 1 not in dict(rows(run, "select rank, wall from accounts"))
    derive(run)
    compare_stored_with_computed(run)
    assert dict(rows(run, "select rank, wall from accounts"))[1] != before[1]


KILLED = """
import os, signal, sys
from pathlib import Path
from lostflops.account.derive import derive as derivation
from lostflops.store import commit, manifest, parquet

left = int(sys.argv[2])

def dying(function):
    def call(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call

parquet.ParquetWriter.write = dying(parquet.ParquetWriter.write)
manifest.make_durable = dying(manifest.make_durable)
manifest.save = dying(manifest.save)
derivation.derive(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("after", [0, 3, 8, 11, 14, 40])
@pytest.mark.few(2)
def test_a_kill_at_any_point_leaves_the_old_run_or_the_new_one(run, after):
    before = rows(run, "select count(*), sum(dur) from events")
    done = subprocess.run([sys.executable, "-c", KILLED, str(run), str(after)], check=False, env=dict(os.environ))
    assert done.returncode in (0, -signal.SIGKILL)
    assert rows(run, "select count(*), sum(dur) from events") == before
    assert rows(run, "select count(*) from accounts") in ([(0,)], [(4,)])
    derive(run)
    compare_stored_with_computed(run)
    named = {file.path for files in load(run).files.values() for file in files}
    on_disk = {str(path.relative_to(run)) for path in (run / "data").rglob("*.parquet")}
    assert named <= on_disk


def gloo_rank(rank, last):
    """A rank that sends or receives in each of twenty steps; the receive of step 10 takes `last` us."""

    def event(name, start, dur, cat="cpu_op", **args):
        return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": dur, "pid": 9, "tid": 1, "args": args}

    call, began, took = ("send", 105, 400) if rank == 0 else ("recv", 206, 299)
    op, peer = ("c10d::send", "1") if rank == 0 else ("c10d::recv_", "0")
    events = []
    for step in range(20):
        at = 1_000_000 + 1000 * step
        events += [
            event(f"ProfilerStep#{step}", at, 1000, cat="user_annotation"),
            event("aten::mm", at + 1, 90),
            event(op, at + began - 6, 10, **{"Concrete Inputs": ["", "", peer, "0"]}),
            event(f"gloo:{call}", at + began, last if rank == 1 and step == 10 else took),
            event("aten::mm", at + 600, 50),
        ]
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}]
    info = {"rank": rank, "world_size": 2, "backend": "gloo", "pg_config": groups}
    return json.dumps({"host_name": "h", "distributedInfo": info, "traceEvents": events})


def test_a_send_depends_on_how_long_its_peer_received(tmp_path):
    files, run = [tmp_path / f"rank{rank}.json" for rank in (0, 1)], tmp_path / "run"
    for rank, file in enumerate(files):
        file.write_text(gloo_rank(rank, 100))
    ingest(files, run, workers=1)
    derive(run)
    [(before,)] = rows(run, "select ns from ledger where rank = 0 and split = 'line' and line = 'comm.transfer'")
    files[1].write_text(gloo_rank(1, 200))
    ingest(files, run, workers=1)
    derive(run)
    compare_stored_with_computed(run)
    [(after,)] = rows(run, "select ns from ledger where rank = 0 and split = 'line' and line = 'comm.transfer'")
    assert after == before + 100_000


def test_a_rank_without_steps_changes_what_all_are_accounted_for_by(apart):
    files, run = apart
    files[3].write_bytes(files[3].read_bytes().replace(b"ProfilerStep#", b"NoStep"))
    ingest(files, run, workers=1)
    with Run.open(run) as opened:
        assert needs_accounts(opened)
    derive(run)
    assert rows(run, "select scope, count(*) from accounts group by scope") == [("trace", 4)]
    compare_stored_with_computed(run)


def test_an_open_run_stays_readable_while_others_derive(run):
    with Run.open(run) as opened:
        derive(run)
        diagnosed = with_accounts(Run.open(run))
        add_tables(run, data_digest(load(run)), {TIMELINE: {name: [] for name in TIMELINE.column_names()}})
        diagnosed.close()
        assert opened.rows("select count(*) from ranks") == [(4,)]
        assert opened.rows("select count(*) > 0 from arrivals") == [(True,)]


def test_the_lock_is_free_while_accounts_are_computed(run, monkeypatch):
    seen = []

    def watched(opened, task):
        with RunWriter(run):
            seen.append(task.ranks)
        return derive_from(opened, task)

    derive_from = derivation.derive_from
    monkeypatch.setattr(derivation, "derive_from", watched)
    assert derive(run)
    assert seen == [[0, 1, 2, 3]]


def test_code_that_changed_after_it_was_loaded_is_not_the_code_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(derived, "_PACKAGE", tmp_path)
    (tmp_path / "rules.py").write_text("1")
    monkeypatch.setattr(derived, "_LOADED", time.time() + 60)
    derived.code_digest.cache_clear()
    loaded = derived.code_digest("rules.py")
    monkeypatch.setattr(derived, "_LOADED", 0.0)
    derived.code_digest.cache_clear()
    assert derived.code_digest("rules.py") == f"{loaded}-{os.getpid()}"
    derived.code_digest.cache_clear()
