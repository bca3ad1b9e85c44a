"""What a live page is answered, question after question."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lostflops.predict.whatif.baseline import baseline
from lostflops.show.pages.knob_positions import try_changes
from lostflops.show.serve.live import LivePage
from lostflops.store.run import Run
from lostflops.testing import SyntheticCluster, store


def test_what_is_tried_later_is_what_is_tried_first(tmp_path: Path) -> None:
    path = store(SyntheticCluster(ranks=2, steps=3, memory=True).generate(), tmp_path / "run")
    live = LivePage(path)
    changes = [("recompute", "layers.0")]
    try:
        asyncio.run(live.try_changes([]))
        later = asyncio.run(live.try_changes(changes))
    finally:
        live.close()
    with Run.open(path) as run:
        assert later == try_changes(baseline(run), changes)
