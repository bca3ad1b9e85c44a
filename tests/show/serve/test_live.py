"""What a live page is answered, question after question."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from lostflops.predict.whatif.baseline import baseline
from lostflops.show.pages.knob_positions import try_changes
from lostflops.show.serve.live import LivePage
from lostflops.store.run import Run
from lostflops.testing import Straggler, SyntheticCluster, store


@pytest.mark.parametrize("change", [("recompute", "layers.0"), ("straggler", "removed")], ids=lambda change: change[0])
@pytest.mark.few(1)
def test_what_is_tried_later_is_what_is_tried_first(tmp_path: Path, change: tuple[str, str]) -> None:
    late = Straggler(1, "slow_kernels", factor=1.5)
    path = store(SyntheticCluster(ranks=4, steps=4, memory=True, stragglers=(late,)).generate(), tmp_path / "run")
    live = LivePage(path)
    changes = [change]
    try:
        asyncio.run(live.try_changes([]))
        later = asyncio.run(live.try_changes(changes))
    finally:
        live.close()
    with Run.open(path) as run:
        assert json.loads(later) == json.loads(json.dumps(asdict(try_changes(baseline(run), changes))))
