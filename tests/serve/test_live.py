"""What a live page is answered, question after question."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lostflops.pages.tried import tried
from lostflops.predict.answers.baseline import baseline
from lostflops.serve.live import Live
from lostflops.store.run import Run
from lostflops.testing import SyntheticCluster, store


def test_what_is_tried_later_is_what_is_tried_first(tmp_path: Path) -> None:
    path = store(SyntheticCluster(ranks=2, steps=3, memory=True).generate(), tmp_path / "run")
    live = Live(path)
    changes = [("recompute", "layers.0")]
    try:
        asyncio.run(live.tried([]))
        later = asyncio.run(live.tried(changes))
    finally:
        live.close()
    with Run.open(path) as run:
        assert later == tried(baseline(run), changes)
