"""Runs made by hand: a few rows of `lanes`, one part per rank, committed as ingest does it."""

from pathlib import Path

import pytest

from lostflops.store.commit import RunWriter
from lostflops.store.manifest import DataFile, Source
from lostflops.store.parquet import ConstantColumn, ParquetWriter
from lostflops.store.remote_commit import writer_of
from lostflops.store.tables import LANES


class HandMadeRun:
    def __init__(self, folder: Path | str) -> None:
        self.folder = folder

    def source(self, rank: int, source_format: str = "kineto", **more: object) -> Source:
        known = {"path": f"/traces/{source_format}-{rank}.json", "size": 10, "modified_ns": 1, "hash": "00"}
        return Source(
            **{**known, "format": source_format, "rank": rank, "rank_source": "recorded", "events": 1, **more}
        )

    def part(self, run: RunWriter, rank: int, name: str, source_format: str = "kineto") -> DataFile:
        """A part with two lanes called after `name`."""
        path = run.staging / "lanes" / f"{source_format}-{rank:06d}.parquet"
        writer = ParquetWriter()
        writer.write(
            LANES,
            {
                "rank": ConstantColumn(rank),
                "lane": [0, 1],
                "kind": ConstantColumn("thread"),
                "name": [name, f"{name}+"],
            },
            path,
        )
        writer.close()
        return DataFile(path=run.relative(path), format=source_format, ranks=[rank])

    def put(self, ranks: list[int], name: str = "first") -> None:
        """Add ranks, replacing those that are there, as ingest does it."""
        with writer_of(self.folder) as run:
            kept = [source for source in run.manifest.sources if source.rank not in ranks]
            writer = ParquetWriter()
            old = run.manifest.files.get("lanes", [])
            rest = [run.without(writer, "lanes", file, set(ranks)) for file in old]
            writer.close()
            parts = [file for file in rest if file is not None] + [self.part(run, rank, name) for rank in ranks]
            run.commit(kept + [self.source(rank) for rank in ranks], {"lanes": parts})

    def files(self) -> set[str]:
        """Every file in the folder but the lock."""
        found = {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if not path.is_dir()}
        return found - {".lock"}


@pytest.fixture
def made(tmp_path):
    return HandMadeRun(tmp_path / "run")
