"""A synthetic cluster as a run on disk: its traces are written and ingested in this process.

Ingesting a small trace spends nearly all of its time on starting Parquet files, not on the JSON: with a file of every
table for each rank, 64 ranks of 657 events take 50 ms each, in ranges of ranks 13 ms.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from lostflops.ingest import ingest, rounds

from .cluster import Generated


def store(generated: Generated, folder: Path | str, *, host_names: bool = False) -> Path:
    """Make the run that ingesting `generated.traces` makes, with fewer files; its sources are gone afterwards.

    >>> from lostflops import Run
    >>> from lostflops.testing import SyntheticCluster, store
    >>> with TemporaryDirectory() as folder:
    ...     with Run.open(store(SyntheticCluster(ranks=2).generate(), f"{folder}/run", host_names=True)) as run:
    ...         run.rows("select rank, host from ranks order by rank")
    [(0, 'host0'), (1, 'host0')]
    """
    with TemporaryDirectory() as traces, patch.object(rounds, "MOST_SINGLE_RANKS", 0):
        ingest(generated.traces.write(traces, host_names=host_names), folder, workers=1)
    return Path(folder)
