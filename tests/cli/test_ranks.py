"""`lostflops ranks`: who is named on clusters whose straggler is known, the JSON contract, and what is refused."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.cli.mini_traces import BUSY, CALM, CPU_RANK, kernel, launch, make_flight_run, make_run, op, step

from lostflops import Run
from lostflops.ingest import ingest
from lostflops.testing import Clock, Kernel, Model, Straggler, SyntheticCluster, store

MODEL = Model(layers=2, kernels=(Kernel(100_000, (512, 512, 512)), Kernel(30_000)), buckets=1)
MS = 1_000_000
CAUSES = {
    "slow_kernels": (Straggler(2, "slow_kernels", factor=1.5), {"compute"}),
    "more_work": (Straggler(2, "more_work", factor=2.0), {"compute"}),
    "late_data": (Straggler(2, "late_data", delay=MS), {"idle.data"}),
    "host_stall": (Straggler(2, "host_stall", delay=MS), {"idle.python", "idle.host"}),
    "allocation": (Straggler(2, "allocation", delay=MS), {"idle.alloc"}),
}
SLOW = CAUSES["slow_kernels"][0]


def made(folder: Path, ranks: int = 4, **job: Any) -> Path:
    return store(SyntheticCluster(ranks=ranks, model=MODEL, **job).generate(), folder / "run", host_names=True)


def answer(lostflops: Any, *words: str | Path) -> dict[str, Any]:
    outcome = lostflops("ranks", *words, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("slow"), stragglers=(SLOW,))


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hosts whose clocks disagree by a third of a second, two ranks of tensors on each."""
    clocks = {0: Clock(5_000), 1: Clock(-300 * MS, drift_ppm=20.0)}
    folder = tmp_path_factory.mktemp("spread")
    return made(folder, tensor_parallel=2, ranks_per_host=2, clocks=clocks, stragglers=(SLOW,))


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("staged"), pipeline_parallel=2, microbatches=3)


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.few(2)
def test_each_cause(lostflops, tmp_path: Path, cause: str) -> None:
    straggler, lines = CAUSES[cause]
    cluster = SyntheticCluster(ranks=4, model=MODEL, stragglers=(straggler,)).generate()
    found = answer(lostflops, store(cluster, tmp_path / "run"))
    (truth,) = cluster.truth.stragglers
    (first,) = found["stragglers"]
    assert (first["rank"], first["kind"], first["cause"]["name"]) == (2, "persistent", cause)
    assert first["cause"]["line"] in lines
    assert first["charged_ns"] == pytest.approx(truth.charged, rel=0.02)
    # What the rank itself did before the first step is in the windows of the others alone.
    assert (first["last"], first["collectives"]) == (3, 3)
    assert first["late_by"]["ns"] > 0


def test_json(lostflops, slow: Path) -> None:
    found = answer(lostflops, slow)
    assert found.keys() == {
        *("schema", "title", "verdict", "notes"),
        *("stragglers", "arrivals", "ranks", "clock", "evenness", "mesh", "findings"),
    }
    assert found["schema"] == "lostflops.ranks/3"
    (first,) = found["stragglers"]
    assert first.keys() == {
        *(
            "rank",
            "kind",
            "is_late",
            "late_by",
            "in_steps",
            "since",
            "charged_ns",
            "cause",
            "step",
            "last",
            "collectives",
        ),
    }
    assert first["cause"].keys() == {"line", "name", "excess_ns"}
    assert first["cause"]["excess_ns"] == pytest.approx(3 * first["step"]["excess_ns"], rel=0.1)
    assert (first["step"]["slow_steps"], first["step"]["steps"]) == (3, 3)
    assert found["clock"].keys() == {"method", "reference", "ranks"}
    assert [row["rank"] for row in found["clock"]["ranks"]] == [0, 1, 2, 3]
    assert found["clock"]["ranks"][0].keys() >= {"rank", "offset_ns", "uncertainty_ns", "drift_ppm"}
    assert found["ranks"][0]["rank"] == 2
    assert sorted(row["rank"] for row in found["ranks"]) == [0, 1, 2, 3]
    waits, charges = (sum(row[name] for row in found["ranks"]) for name in ("wait_ns", "charged_ns"))
    assert 3 * waits == pytest.approx(charges, abs=20)
    assert found["mesh"] == {"dp": 4, "source": "traffic"}


def test_offsets_are_those_of_the_clocks(lostflops, spread: Path) -> None:
    clock = answer(lostflops, spread)["clock"]
    assert (clock["method"], clock["reference"]) == ("collectives", 0)
    for row in clock["ranks"][2:]:
        assert 0 < row["uncertainty_ns"] < MS
        assert row["offset_ns"] == pytest.approx(300 * MS + 5_000, abs=row["uncertainty_ns"])
    assert [row["offset_ns"] for row in clock["ranks"][:2]] == [0, 0]


def test_clocks_that_disagree_hide_nobody(lostflops, spread: Path) -> None:
    found = answer(lostflops, spread)
    assert [row["rank"] for row in found["stragglers"]] == [2]
    assert {name: found["mesh"][name] for name in ("tp", "dp")} == {"tp": 2, "dp": 2}
    walls = max(row["own_ns"] + row["wait_ns"] for row in found["ranks"])
    assert all(row["wait_ns"] < walls for row in found["ranks"])


def test_two_stragglers_largest_charge_first(lostflops, tmp_path: Path) -> None:
    slower = (Straggler(1, "late_data", delay=MS // 2, steps=(10, 11)), Straggler(6, "late_data", delay=3 * MS))
    found = answer(lostflops, made(tmp_path, ranks=8, stragglers=slower))
    charges = [row["charged_ns"] for row in found["stragglers"]]
    assert found["stragglers"][0]["rank"] == 6
    assert charges == sorted(charges, reverse=True)


def test_a_slow_rank_of_a_stage(lostflops, tmp_path: Path) -> None:
    straggler = Straggler(1, "slow_kernels", factor=1.5)
    job = made(tmp_path, steps=12, pipeline_parallel=2, microbatches=3, stragglers=(straggler,))
    found = answer(lostflops, job)  # with one peer, few steps cannot show how much they vary by chance
    assert [row["rank"] for row in found["stragglers"]] == [1]
    assert found["stragglers"][0]["cause"]["line"] == "compute"


def test_an_even_pipeline_accuses_nobody(lostflops, staged: Path) -> None:
    assert answer(lostflops, staged)["stragglers"] == []
    assert lostflops("ranks", staged).out.splitlines()[-1] == f"Next: lostflops pipeline {staged}"


def test_nobody_is_late(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, made(tmp_path))
    assert found["stragglers"] == []
    assert found["verdict"].startswith("No rank is late. A rank that is ")


def test_where_nobody_waits_nobody_is_the_last(lostflops, tmp_path: Path) -> None:
    """Ranks that do exactly the same arrive together."""
    run = made(tmp_path, noise=0.0)
    assert [(row["last"], row["collectives"], row["charged_ns"]) for row in answer(lostflops, run)["ranks"]] == [
        (0, 0, 0)
    ] * 4
    with Run.open(run) as opened:
        assert opened.sql("select distinct late_rank, wait from arrivals").fetchall() == [(None, 0)]
        assert opened.sql("select distinct step from arrivals order by 1").fetchall() == [(10,), (11,), (12,)]


def test_text(lostflops, slow: Path) -> None:
    outcome = lostflops("ranks", slow)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0] == "Late ranks"
    assert lines[1].startswith("Rank 2 is late by 377 us per step (31.4% of a step), in all 3 steps: slow")
    assert re.search(r"Fixing it saves \d+% of the step +\(", " ".join(lines[1:5]))
    assert any(line.strip().startswith("0-3  ··█·") for line in lines)
    assert "Stragglers (waits and excess of all steps)" in lines
    assert "Ranks, time per step (waited for: all steps), most waited for first" in lines
    assert lines[-1] == f"Next: lostflops report {slow} --rank 2"


@pytest.mark.parametrize("run", ["slow", "spread", "staged"])
def test_it_fits_and_its_next_command_runs(lostflops, run: str, request: pytest.FixtureRequest) -> None:
    *lines, following = lostflops("ranks", request.getfixturevalue(run)).out.splitlines()
    assert max(map(len, lines)) <= 80
    words = shlex.split(following.removeprefix("Next: lostflops "))
    assert lostflops(*words).code == 0


def test_the_mesh_may_be_stated(lostflops, slow: Path) -> None:
    found = answer(lostflops, slow, "--mesh", "tp=2,dp=2")
    assert found["mesh"] == {"tp": 2, "dp": 2, "source": "given"}
    assert [row["rank"] for row in found["stragglers"]] == [2]
    alone = answer(lostflops, slow, "--mesh", "pp=4")
    assert alone["stragglers"] == []
    assert alone["verdict"].startswith("Every rank does different work")


def test_one_step(lostflops, tmp_path: Path) -> None:
    run = made(tmp_path, stragglers=(Straggler(2, "slow_kernels", factor=2.0, steps=(11,)),))
    (late,) = answer(lostflops, run, "--step", "11")["stragglers"]
    assert (late["rank"], late["step"]["steps"]) == (2, 1)
    assert answer(lostflops, run, "--step", "10")["stragglers"] == []
    assert answer(lostflops, run)["stragglers"] == [], "one of three steps is no habit"


def test_the_window_of_the_trace(lostflops, slow: Path) -> None:
    found = answer(lostflops, slow, "--window", "trace")
    assert [row["rank"] for row in found["stragglers"]] == [2]
    assert "step" not in found["verdict"]
    assert {"Stragglers", "Ranks, most waited for first"} <= set(
        lostflops("ranks", slow, "--window", "trace").out.splitlines()
    )


def test_collectives_outside_all_steps_do_not_count(lostflops, tmp_path: Path) -> None:
    """The last step is not marked: what runs in it is recorded, and in no step."""
    generated = SyntheticCluster(ranks=4, model=MODEL, stragglers=(SLOW,)).generate()
    traces = generated.traces.write(tmp_path / "traces")
    for path in traces:
        trace = json.loads(path.read_text())
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("name") != "ProfilerStep#12"]
        path.write_text(json.dumps(trace))
    ingest(traces, tmp_path / "run", workers=1)
    found = answer(lostflops, tmp_path / "run")
    del found["findings"]  # only the whole run has them
    steps = answer(lostflops, tmp_path / "run", "--step", "10", "--step", "11")
    by = "Rank 2 is late by 374 us per step (31.3% of a step), in all 2 steps"
    assert by in found.pop("verdict")  # which adds what the first finding saves
    assert by in steps.pop("verdict")
    assert found == steps
    assert {row["collectives"] for row in found["ranks"]} == {2}
    assert {row["collectives"] for row in answer(lostflops, tmp_path / "run", "--window", "trace")["ranks"]} == {3}


def test_limit(lostflops, slow: Path) -> None:
    assert "... and 3 more" in lostflops("ranks", slow, "--limit", "1").out
    assert len(answer(lostflops, slow, "--limit", "1")["ranks"]) == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--mesh", "pp=3"], "the mesh pp=3 has 3 places, but the job has 4 ranks: state every dimension"),
        (["--mesh", "four"], "as in tp=2,dp=2,pp=4"),
        (["--mesh", ""], "as in tp=2,dp=2,pp=4"),
        (["--mesh", "dp=0"], "as in tp=2,dp=2,pp=4"),
        (["--step", "99"], "no step 99 was recorded; recorded steps: 10, 11, 12"),
        (["--step", "10", "--window", "trace"], "--step does not work with --window trace: leave out one of them"),
        (["--limit", "0"], "--limit"),
        (["--window", "week"], "--window"),
    ],
)
def test_nonsense_is_refused(lostflops, slow: Path, words: list[str], says: str) -> None:
    refused = lostflops("ranks", slow, *words)
    assert (refused.code, refused.out) == (2, "")
    assert says in " ".join(refused.err.split())


def test_no_run(lostflops, tmp_path: Path) -> None:
    refused = lostflops("ranks", tmp_path)
    assert (refused.code, refused.out) == (5, "")
    assert "lostflops ingest" in refused.err
    assert refused.err.count("\n") == 1


def test_one_rank_cannot_be_compared(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, made(tmp_path, ranks=1))
    assert found["verdict"].startswith("Only one rank recorded any time")
    assert (found["stragglers"], len(found["ranks"])) == ([], 1)


def test_dumps_alone_cannot_tell(lostflops, tmp_path: Path) -> None:
    run = make_flight_run(tmp_path)
    found = answer(lostflops, run)
    assert found["verdict"] == "No rank recorded any time."
    assert (found["stragglers"], found["ranks"]) == ([], [])
    assert found["arrivals"] == [{"row": "0-1", "values": [None, None]}]
    assert lostflops("ranks", run).code == 0


def test_ranks_without_communication(lostflops, tmp_path: Path) -> None:
    """Nothing met: who has more to do can be told, whether anybody waited cannot."""
    found = answer(lostflops, make_run(tmp_path, BUSY, CALM))
    assert all(row["charged_ns"] is row["wait_ns"] is row["last"] is None for row in found["ranks"])
    assert found["clock"]["ranks"][1]["offset_ns"] in (0, None)
    assert lostflops("ranks", make_run(tmp_path / "cpu", CPU_RANK, CPU_RANK, device="")).code == 0


def test_steps_that_a_rank_lacks_accuse_nobody(lostflops, tmp_path: Path) -> None:
    """Rank 0 was recorded in a step more, and that was long; the last one of rank 1 lacks the pause behind it."""
    steps = [
        event
        for number, length in ((1, 50), (2, 50), (3, 20), (4, 500))
        for event in (
            step(number, 100 * number, 100),
            op("aten::mm", 100 * number + 2, 8),
            launch(number, 100 * number + 4),
            kernel(number, 100 * number + 10, length),
        )
    ]
    found = answer(lostflops, make_run(tmp_path, steps, steps[:-4]))
    assert found["stragglers"] == []
    assert found["verdict"].startswith("No rank is late. A rank that is 1.0% late would have been found")


def test_a_rank_without_the_step_is_said(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, make_run(tmp_path, CALM, CALM, CALM[:4]), "--step", "11")
    assert sorted(row["rank"] for row in found["ranks"]) == [0, 1]
    assert "1 of 3 ranks recorded no time in this window." in found["notes"]
