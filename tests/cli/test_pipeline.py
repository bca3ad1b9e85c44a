"""`lostflops pipeline`: what is printed, the JSON contract, and what is refused."""

import json

import pytest

from lostflops.ingest import ingest
from lostflops.testing import Kernel, Model, SyntheticCluster


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("staged")
    model = Model(layers=2, kernels=(Kernel(300_000),), buckets=1)
    cluster = SyntheticCluster(ranks=4, pipeline_parallel=2, microbatches=3, steps=2, noise=0.0, model=model)
    ingest(cluster.generate().traces.write(folder / "traces"), folder / "run", workers=1)
    return folder / "run"


def test_json(lostflops, staged):
    outcome = lostflops("pipeline", staged, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert found.keys() == {"schema", "title", "verdict", "notes", "bubble", "causes", "findings", "stages", "schedule"}
    assert found["schema"] == "lostflops.pipeline/1"
    assert found["bubble"].keys() == {
        *("achieved", "inherent", "excess", "warm_up", "steady", "drain", "between_pipelines"),
        *("schedule", "stages", "microbatches", "chunks"),
    }
    assert found["bubble"]["inherent"] == 1 / 4
    assert found["stages"][0].keys() == {"stage", "ranks", "forward_ns", "backward_ns", "busy", "bubble", "vs_mean"}
    assert [row["stage"] for row in found["stages"]] == [0, 1]


def test_text(lostflops, staged):
    outcome = lostflops("pipeline", staged)
    assert (outcome.code, outcome.err) == (0, "")
    assert "25.0% is inherent to 1F1B with 2 stages and 3 microbatches" in " ".join(outcome.out.split())
    assert "lostflops ranks" in outcome.out


def test_the_mesh_may_be_stated(lostflops, staged):
    assert json.loads(lostflops("pipeline", staged, "--mesh", "dp=2,pp=2", "--json").out)["bubble"]["stages"] == 2
    refused = lostflops("pipeline", staged, "--mesh", "pp=3")
    assert (refused.code, refused.out) == (2, "")
    assert "3 places, but the job has 4 ranks" in refused.err
    assert "as in tp=2,dp=2,pp=4" in lostflops("pipeline", staged, "--mesh", "pp").err
    none = json.loads(lostflops("pipeline", staged, "--mesh", "dp=4", "--json").out)
    assert none["verdict"].startswith("The bubble is unknown")
