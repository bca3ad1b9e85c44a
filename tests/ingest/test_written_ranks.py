"""Rows of some ranks are replaced before the commit, and no row of another rank is lost by it."""

from pathlib import Path

from lostflops.ingest.join.written_ranks import Files, WrittenRanks
from lostflops.store.commit import RunWriter
from lostflops.store.parquet import ParquetWriter
from lostflops.store.tables import STATS


def rows(rank: int, count: int) -> dict[str, list[object]]:
    """So many rows of a rank: `count` counts them."""
    return {column.name: [{"rank": rank, "what": f"of {rank}"}.get(column.name)] * count for column in STATS.columns}


def test_a_file_without_its_first_rank_keeps_its_rows(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "run") as run:
        writer, files = ParquetWriter(), Files()
        WrittenRanks(run, files, [0, 1], writer).replace(STATS, "kineto", {0: rows(0, 0), 1: rows(1, 3)})
        WrittenRanks(run, files, [0, 2], writer).replace(STATS, "kineto", {0: rows(0, 2), 2: rows(2, 1)})
        found = WrittenRanks(run, files, [0, 1, 2], writer).read(STATS, "kineto")
        assert {rank: own["what"] for rank, own in found.items()} == {
            0: ["of 0"] * 2,
            1: ["of 1"] * 3,
            2: ["of 2"],
        }
        writer.close()
