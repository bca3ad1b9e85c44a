import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lostflops.cli.main import main
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.tasks import TaskGraph
from lostflops.predict.whatif import tune
from lostflops.predict.whatif.change import Change, Edited, Facts
from lostflops.predict.whatif.graph_edits.values import number
from lostflops.testing import Network, SyntheticCluster, store


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = SyntheticCluster(ranks=2, ranks_per_host=1, network=Network(inter_gbs=2)).generate()
    return store(made, tmp_path_factory.mktemp("tune") / "run", host_names=True)


@pytest.fixture(autouse=True)
def change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transfers take 100 us and, the farther the size is from 16, the more."""

    def apply(graph: TaskGraph, value: str, facts: Facts) -> Edited:
        took = 100_000 * (1 + abs(np.log2(number(value, "bucket_mb") / 16)))
        return Edited(graph=retime_graph(graph, transfer=np.full(len(graph.meetings), took)), doubt=0.1)

    fake = Change(
        name="bucket_mb",
        form="bucket_mb=MB",
        about="",
        cost="",
        how=lambda value: f"bucket_cap_mb={value}",
        apply=apply,
    )
    monkeypatch.setattr(tune, "tune_bucket", partial(tune.tune_bucket, known=(fake,)))


def called(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_a_sweep(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("tune", "bucket", run, "--sizes", "4,8,16,32", "--plot", tmp_path / "curve.svg", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "lostflops.tune/1"
    assert [row["bucket_mb"] for row in told["sizes"]] == [4, 8, 16, 32]
    assert (told["best"]["bucket_mb"], told["best"]["how"]) == (16, "bucket_cap_mb=16")
    assert told["best"]["gain"] > 0.1
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")


def test_whatif_tunes_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("tune", "bucket", run, "--sizes", "4,16", "--json") == 0
    old = json.loads(capsys.readouterr().out)
    assert called("whatif", run, "--tune", "bucket_mb=4,16", "--json") == 0
    assert json.loads(capsys.readouterr().out) == old
    assert called("whatif", run, "--tune", "precision") == 2
    assert "only bucket_mb can be tuned" in capsys.readouterr().err


def test_people_see_a_curve(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("tune", "bucket", run, "--sizes", "4,32") == 0
    told = capsys.readouterr().out
    assert "Step time by bucket size" in told
    assert f"Next: lostflops whatif {run} --change bucket_mb=" in told


def test_sizes_that_are_none(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("tune", "bucket", run, "--sizes", "4,big") == 2
    assert "give a positive number" in capsys.readouterr().err
