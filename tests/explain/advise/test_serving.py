"""Traces of servers, which mark no steps: communication that nothing hides is found all the same."""

import pytest

from lostflops.explain.advise.diagnose import diagnose
from lostflops.ingest import ingest
from lostflops.store.run import Run
from shared_data import TRACES, needs_traces


@needs_traces
@pytest.mark.parametrize("ranks", [8, 1], ids=["all ranks", "one rank"])
@pytest.mark.few(1)
def test_communication_of_a_server_is_the_first_cause(tmp_path, ranks):
    """Of eight ranks 41% to 47% of the window is communication that nothing hides, waits among it."""
    found = sorted((TRACES / "sgl-project__sglang").glob("*/*EXTEND*.json.gz"))[:ranks]
    ingest(found, tmp_path / "run", workers=2)
    with Run.open(tmp_path / "run") as run:
        result = diagnose(run)
    first = result.blocks[0].items[0]
    assert first.cause == "exposed_comm"
    assert 0.3 < first.lost_share < 0.5
    assert any("Steps were inferred" in note for note in result.notes)
