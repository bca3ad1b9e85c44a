"""Mini traces: events as Python dicts, written as Kineto does, ingested, asked with SQL."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lostflops.ingest import ingest
from lostflops.store.run import Run


class Traces:
    """Writes traces into a folder of its own and ingests them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "traces"
        self.run = folder / "run"
        self.folder.mkdir()

    def write(self, name: str, events: Any, **document: Any) -> Path:
        """`events` as the list of events, or as the JSON text of it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"schemaVersion": 1, **document, "traceEvents": "@"}, indent=2)
        whole = text.replace('"@"', events if isinstance(events, str) else json.dumps(events, indent=2)).encode()
        path.write_bytes(gzip.compress(whole, mtime=0) if name.endswith(".gz") else whole)
        return path

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with Run.open(self.run) as run:
            return run.sql(query).fetchall()

    def tables(self, *but: str) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all tables, sorted, without the columns that tell the file."""
        found = {}
        with Run.open(self.run) as run:
            for name in (
                "ranks",
                "lanes",
                "events",
                "steps",
                "groups",
                "collectives",
                "memory",
                "links",
                "flight",
                "passes",
                "stats",
            ):
                files = {"source", "source_bytes", "source_hash"} if name == "ranks" else set()
                columns = [column for column in run.table(name).columns if column not in files | set(but)]
                found[name] = sorted(run.sql(f"select {', '.join(columns)} from {name}").fetchall(), key=str)
        return found


@pytest.fixture
def traces(tmp_path):
    return Traces(tmp_path)


@pytest.fixture
def rows(traces):
    """Rows that a question gets from one mini trace of rank 0."""

    def ask(query: str, events: Any, **document: Any) -> list[tuple[Any, ...]]:
        ingest([traces.write("rank0.json", events, **document)], traces.run, workers=1, replace=True)
        return traces.ask(query)

    return ask
