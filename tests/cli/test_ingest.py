import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import lostflops.ingest
from lostflops.cli import ingesting
from memory_run import MemoryRun


@dataclass(frozen=True)
class Summary:
    run: Path
    ranks_added: tuple[int, ...] = (0, 1)
    ranks_replaced: tuple[int, ...] = ()
    ranks_unchanged: tuple[int, ...] = (2,)
    events: int = 1234
    bytes_read: int = 5_000_000
    seconds: float = 2.0
    skipped: tuple[tuple[str, str], ...] = ()


@pytest.fixture
def engine(runs, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Records what the engine was asked; `summary` and `stats` say what it found."""
    asked: dict[str, Any] = {"summary": Summary(Path("out")), "stats": []}

    def ingest(sources, out, *, workers, replace, engine, progress) -> Summary:
        asked.update(sources=sources, out=out, workers=workers, replace=replace, engine=engine, progress=progress)
        runs[str(out)] = lambda: MemoryRun(ranks=[{"rank": 0, "events": 9}], stats=asked["stats"])
        return asked["summary"]

    monkeypatch.setattr(lostflops.ingest, "ingest", ingest, raising=False)
    return asked


def test_summary_and_next_command(lostflops, engine) -> None:
    outcome = lostflops("ingest", "a.json", "traces/", "-o", "my run", "--workers", "3", "--replace")
    assert outcome.code == 0
    assert outcome.out.splitlines()[1] == "2 ranks and 1,234 events in 2.00 s (2.50 MB/s)."
    assert outcome.out.splitlines()[-1] == "Next: lostflops info 'my run'"
    assert "Note" not in outcome.out
    assert outcome.err == ""
    assert engine["sources"] == ["a.json", "traces/"]
    assert (engine["out"], engine["workers"], engine["replace"]) == (Path("my run"), 3, True)
    assert (engine["engine"], engine["progress"]) == ("local", None)
    assert lostflops("ingest", "a.json", "-o", "run", "--engine", "ray").code == 0
    assert engine["engine"] == "ray"


def test_json(lostflops, engine) -> None:
    engine["summary"] = replace(engine["summary"], skipped=(("x.txt", "not a trace"),))
    outcome = lostflops("ingest", "a.json", "-o", "out", "--json")
    data = json.loads(outcome.out)
    assert data["schema"] == "lostflops.ingest/1"
    assert data["ingested"] == {
        "run": "out",
        "ranks_added": 2,
        "ranks_replaced": 0,
        "ranks_unchanged": 1,
        "events": 1234,
        "bytes_read": 5_000_000,
        "ns": 2_000_000_000,
    }
    assert data["skipped"] == [{"file": "x.txt", "reason": "not a trace"}]


def test_doubtful_ranks_are_named(lostflops, engine) -> None:
    engine["stats"] = [{"rank": 0, "what": "truncated", "effect": "missing", "count": 1}]
    outcome = lostflops("ingest", "a.json", "-o", "out")
    assert "Note: Data quality: the rank is usable, with gaps." in outcome.out
    assert "Note: Rank 0 (usable): truncated: 1" in outcome.out


def test_what_a_cluster_wrote_to_a_store_is_not_fetched_for_a_verdict(lostflops, engine) -> None:
    engine["stats"] = [{"rank": 0, "what": "truncated", "effect": "missing", "count": 1}]
    words = ("ingest", "s3://bucket/traces", "-o", "s3://bucket/run")
    assert "Note: Rank 0 (usable)" in lostflops(*words).out
    outcome = lostflops(*words, "--engine", "ray")
    assert (outcome.code, "Note" in outcome.out) == (0, False)
    assert outcome.out.splitlines()[-1] == "Next: lostflops info s3://bucket/run"


def test_a_terminal_sees_progress(lostflops, engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingesting.sys.stderr, "isatty", lambda: True)
    lostflops("ingest", "a.json", "-o", "out")
    assert callable(engine["progress"])


@pytest.mark.parametrize("arguments", [(), ("a.json",), ("-o", "out"), ("a.json", "-o", "out", "--workers", "0")])
def test_usage_errors(lostflops, engine, arguments: tuple[str, ...]) -> None:
    assert lostflops("ingest", *arguments).code == 2
    assert "sources" not in engine
