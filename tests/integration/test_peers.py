"""How other tools are put into a script, read and judged, on stand-ins of their output."""

from typing import Any

import pytest
from benchmarks.peers.instrument import HOLDERS, with_pytscope, with_traceml
from benchmarks.peers.judge import MEANINGS, NOTHING, PARTLY, RIGHT, WRONG, Said, findings, judge, late_rank
from benchmarks.peers.render import main, page
from benchmarks.peers.tools import PEERS, read_pytscope, read_traceml
from clinic.real import REAL
from clinic.record import JOBS

SCRIPT = """
import torch

def main():
    model, optimizer = made()
    for block in model:
        shard(block)
    for batch in batches:
        model(batch).backward()
        if is_whole(batch):
            optimizer.step()
            log(batch)
    end()
"""


def issue(kind: str, severity: str = "warn", ranks: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"kind": kind, "status": kind.replace("_", " "), "severity": severity, "ranks": list(ranks)}


def verdict(*codes: str, causes: str, late: int | None = None, ranks: tuple[int, ...] = ()) -> str:
    return judge(findings([Said(code, code, ranks) for code in codes]), causes.split(), late)


def test_traceml_is_put_around_the_block_that_steps() -> None:
    changed = with_traceml(SCRIPT, "held.")
    assert (
        "        if is_whole(batch):\n            with traceml.trace_step(held.model):\n                optimizer"
        in changed
    )
    assert changed.index("import traceml_ai as traceml") < changed.index("traceml.init(mode='auto')")


@pytest.mark.parametrize(("ranks", "more"), [(1, ""), (2, ", distributed=True")])
def test_pytscope_is_put_around_the_loop(ranks: int, more: str) -> None:
    changed = with_pytscope(SCRIPT, ranks=ranks)
    made = f"    prof = AutoProfiler('pytscope', model, optimizer, warmup=10{more})\n    prof.start()\n    for batch in"
    assert made in changed
    assert changed.endswith("            log(batch)\n    prof.finish()\n    end()\n")


def test_a_script_without_one_loop_of_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="0 loops"):
        with_traceml("import torch\ndef main(): pass")


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_script_that_a_peer_supports_can_be_changed(peer) -> None:
    for script in sorted({job.script for job in (one.job for one in REAL) if job} & peer.scripts):
        source = (JOBS / script).read_text(encoding="utf-8")
        changed = peer.instrument(source, HOLDERS.get(script, ""), 2)
        compile(changed, script, "exec")
        assert f"{HOLDERS.get(script, '')}model" in changed


def test_the_verdict_of_traceml_comes_first_with_its_ranks_and_information_only_where_it_is_the_verdict() -> None:
    summary = {
        "primary_diagnosis": {**issue("INPUT_STRAGGLER"), "ranks": None},
        "step_time": {"issues": [issue("INPUT_STRAGGLER", ranks=(2,)), issue("COMPUTE_BOUND", "info")]},
        "system": {"issues": [issue("HIGH_CPU")]},
        "process": {"issues": []},
    }
    said = read_traceml(summary)
    assert [(one.code, one.ranks) for one in said] == [("INPUT_STRAGGLER", (2,)), ("HIGH_CPU", ())]
    assert [one.code for one, _ in findings(said)] == ["INPUT_STRAGGLER"]
    calm = read_traceml(
        {"primary_diagnosis": issue("COMPUTE_BOUND", "info"), "system": {"issues": [issue("HIGH_CPU")]}}
    )
    assert [one.code for one in calm] == ["COMPUTE_BOUND", "HIGH_CPU"]
    assert findings(calm) == []


def test_findings_of_pytscope_are_read_in_their_order() -> None:
    report = (
        "* FINDINGS (3)\n"
        "  [HIGH] 38% is recoverable (data_stall)  (EFFICIENCY.RECOVERABLE)\n"
        "        Some words (of detail)\n"
        "  [MED ] Rank 2 is late  (DIST.STRAGGLER)\n"
        "  [LOW ] Uneven  (TIMING.JITTER)\n"
    )
    assert [(one.code, one.words, one.ranks) for one in read_pytscope(report)] == [
        ("EFFICIENCY.RECOVERABLE data_stall", "38% is recoverable (data_stall)", ()),
        ("DIST.STRAGGLER", "Rank 2 is late", (2,)),
        ("TIMING.JITTER", "Uneven", ()),
    ]
    assert read_pytscope("* FINDINGS (0)\n  none\n") == []


@pytest.mark.parametrize(
    ("codes", "causes", "expected"),
    [
        ("INPUT_BOUND", "input_pipeline", RIGHT),
        ("INPUT_BOUND", "straggler input_pipeline", RIGHT),
        ("INPUT_BOUND", "gc", WRONG),
        ("RESIDUAL_HEAVY", "checkpoint", PARTLY),
        ("TIMING.DATALOADER_BOUND DIST.STRAGGLER", "straggler", PARTLY),
        ("TIMING.DATALOADER_BOUND TIMING.JITTER MEMORY.GROWTH DIST.STRAGGLER", "straggler", WRONG),
        ("", "gc", NOTHING),
        ("HIGH_CPU", "gc", NOTHING),
        ("", "", RIGHT),
        ("HIGH_CPU", "", RIGHT),
        ("TIMING.JITTER", "", WRONG),
    ],
)
def test_judging(codes: str, causes: str, expected: str) -> None:
    assert verdict(*codes.split(), causes=causes) == expected


def test_a_wrong_rank_is_wrong_and_none_is_not() -> None:
    asked = {"causes": "straggler", "late": 1}
    assert verdict("DIST.STRAGGLER", **asked, ranks=(1,)) == RIGHT
    assert verdict("DIST.STRAGGLER", **asked, ranks=(0,)) == WRONG
    assert verdict("DIST.STRAGGLER", **asked) == RIGHT
    assert verdict("INPUT_BOUND", causes="input_pipeline straggler", late=1, ranks=(0,)) == RIGHT


@pytest.mark.parametrize(
    ("flags", "rank"),
    [("--slow 1:1.6", 1), ("--preview 2:40", 2), ("--rank-batch 6,12,6", 1), ("--rank-batch random:2:14", None)],
)
def test_who_is_late(flags: str, rank: int | None) -> None:
    assert late_rank(flags) == rank


def test_causes_of_findings_are_those_of_the_clinic() -> None:
    known = {cause for one in REAL for cause in one.causes} | {"copies", "precision", "unfused", "allocator"}
    assert {cause for means in MEANINGS.values() for cause in means.names | means.lists} <= known


def job(name: str, causes: str, *said: Said, **more: str) -> dict[str, Any]:
    told = {"name": name, "causes": causes.split(), "script": "train.py", "flags": "", "ranks": 2}
    return told | (more or {"said": [one.to_json() for one in said]})


PEER = {
    "version": "1",
    "machine": "x, 2 cores",
    "steps": 50,
    "jobs": [
        job("slow", "gc", Said("INPUT_BOUND", "SLOW INPUT", (0,)), Said("STRAGGLER", "LATE", (1,))) | {"load": 0.5},
        job("piped", "few_microbatches", left_out="not supported: pipelines"),
        job("well", "", Said("COMPUTE_BOUND", "COMPUTE", is_information=True)),
    ],
}


def test_the_page_counts_and_quotes() -> None:
    text = page({"traceml-ai": PEER}, None)
    assert '| slow | `gc` | not run | wrong: "SLOW INPUT", "LATE" (rank 1) | not run |' in text
    assert "- `traceml-ai` 1: x, 2 cores, 50 steps, load average before a job 0.5 (median).\n" in text
    assert "| piped | `few_microbatches` | not run | not supported: pipelines | not run |" in text
    assert '| well | healthy | not run | right: "COMPUTE" | not run |' in text
    assert "| `traceml-ai` | 1 | 0 | 0 | 1 | 0 | 1 | 0 |" in text
    assert "| INPUT_BOUND | `input_pipeline` |" in text


def test_our_column_comes_from_the_clinic() -> None:
    seen = {"found": [{"cause": "sync", "gain": None}, {"cause": "gc", "gain": 0.1}], "skipped": "", "failed": ""}
    text = page({"traceml-ai": PEER}, {"patients": [{"name": "slow", "causes": ["gc"], **seen}]})
    assert "| slow | `gc` | partly: `sync`, `gc` |" in text
    assert "| `lostflops` | 1 | 0 | 1 | 0 | 0 | 0 | 0 |" in text


def test_the_summary_is_over_the_jobs_that_all_were_given() -> None:
    other = {**PEER, "jobs": [job("slow", "gc"), job("else", "gc", Said("INPUT_BOUND", "SLOW INPUT"))]}
    text = page({"traceml-ai": PEER, "pytscope": other}, None)
    assert "| `traceml-ai` | 1 | 0 | 0 | 1 | 0 | 0 | 0 |" in text
    assert "| `pytscope` | 1 | 0 | 0 | 0 | 1 | 0 | 0 |" in text
    assert "| `lostflops` | not run |" in text


def test_the_page_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out
