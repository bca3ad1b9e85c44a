"""`lostflops memory`, and the memory of a run in its report."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.mini_traces import BUSY, HOST, THREAD, Event, kernel, launch, make_run, op, step

from lostflops.account.memory.owners import OWNERS
from lostflops.cli.verbs.memory import MemoryBy, _next, _suggest_whatif
from lostflops.ingest import ingest
from lostflops.predict.whatif.recomputation.recomputable import is_size
from lostflops.store.run import Run
from memory_run import MemoryRun
from shared_data import TRACES, needs_traces

GB = 10**9
BASE = 4 * GB
"""Allocated before the window."""


def moved(ts: float, size: int, address: int, *, total: int, device: tuple[int, int] = (1, 0)) -> Event:
    """An allocation, or a free where the size is negative."""
    args = {
        "Device Type": device[0],
        "Device Id": device[1],
        "Addr": address,
        "Bytes": size,
        "Total Allocated": total,
        "Total Reserved": 8 * GB if device[0] else 0,
    }
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": HOST, "tid": THREAD, "ts": ts, "args": args}


def training(saved: int, *, number: int = 7) -> list[Event]:
    """A step on a device that saves two activations in forward and frees them in backward, with a temporary of 1 GB."""
    sizes = [(12, saved, 1), (22, saved, 2), (52, GB, 3), (56, -GB, 3), (58, -saved, 2), (68, -saved, 1)]
    events, total = [], BASE
    for ts, size, address in sizes:
        total += size
        events.append(moved(ts, size, address, total=total))
    return [
        step(number, 0, 100),
        op("aten::linear", 10, 5),
        launch(1, 14),
        kernel(1, 30, 10),
        op("aten::gelu", 20, 5),
        op("autograd::engine::evaluate_function: GeluBackward0", 50, 10),
        op("GeluBackward0", 51, 8),
        op("aten::gelu_backward", 51.5, 6),
        op("autograd::engine::evaluate_function: AddmmBackward0", 62, 10),
        op("Optimizer.step#AdamW.step", 80, 10) | {"cat": "user_annotation"},
        *events,
    ]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 1 saves half a GB more of each than rank 0."""
    return make_run(tmp_path_factory.mktemp("golden"), training(GB), training(3 * GB // 2))


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("without"), BUSY)


def answer(lostflops: Any, *words: str | Path) -> dict[str, Any]:
    outcome = lostflops("memory", *words, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def check(found: dict[str, Any]) -> None:
    """It closes, as integers, whichever way it is looked at."""
    peak = found["peak"]["bytes"]
    assert {held["owner"] for held in found["owners"]} == {owner.value for owner in OWNERS}
    assert sum(held["bytes"] for held in found["owners"]) == peak
    for held in found["owners"]:
        assert sum(part["bytes"] for part in held["parts"]) == held["bytes"]
        assert held["share"] == held["bytes"] / peak
    for places in (found["layers"], found["modules"]):
        assert sum(place["bytes"] for place in places) == peak
        assert all(sum(place["owners"].values()) == place["bytes"] for place in places)
    drawn = found["timeline"]
    assert max(drawn["bytes"]) == peak
    assert [sum(column) for column in zip(*drawn["owners"].values(), strict=True)] == drawn["bytes"]
    assert all(sum(row["owners"].values()) == row["bytes"] for row in found["ranks"])
    assert found["ranks"][0]["bytes"] == peak


def test_json(lostflops, golden: Path) -> None:
    found = answer(lostflops, golden)
    check(found)
    assert found["schema"] == "lostflops.memory/1"
    assert found["peak"] == {
        "bytes": 8 * GB,
        "rank": 1,
        "device": "cuda:0",
        "at_ns": found["peak"]["at_ns"],
        "into_window_ns": 52_000,
        "phase": "backward",
        "step": 7,
        "module": None,
        "op": found["peak"]["op"],
        "line": None,
    }
    owners = {held["owner"]: held["bytes"] for held in found["owners"] if held["bytes"]}
    assert owners == {"activations": 3 * GB, "temporaries": GB, "unattributed": 4 * GB}
    assert found["owners"][0]["owner"] == "activations"
    assert found["owners"][-1]["owner"] == "unattributed"
    assert {part["name"]: part["bytes"] for part in found["owners"][0]["parts"]} == {
        "aten::linear": 3 * GB // 2,
        "aten::gelu": 3 * GB // 2,
    }
    assert found["unattributed_share"] == 0.5
    assert found["fragmentation"] is None
    assert found["growth"] == []
    assert found["reserved"] == {"peak_bytes": 8 * GB, "bytes": 8 * GB, "slack_bytes": 0, "slack_share": 0.0}
    assert [(mark["step"]) for mark in found["timeline"]["steps"]] == [7]


def test_rank_against_rank(lostflops, golden: Path) -> None:
    found = answer(lostflops, golden)
    assert [(row["rank"], row["bytes"]) for row in found["ranks"]] == [(1, 8 * GB), (0, 7 * GB)]
    assert found["spread"] == {
        "highest_rank": 1,
        "highest_bytes": 8 * GB,
        "lowest_rank": 0,
        "lowest_bytes": 7 * GB,
        "bytes": GB,
        "owner": "activations",
        "owner_bytes": GB,
    }
    assert "Rank 1 holds 1.00 GB more than rank 0: activations 1.00 GB more." in found["verdict"]
    alone = answer(lostflops, golden, "--rank", "0")
    check(alone)
    assert (alone["peak"]["rank"], alone["peak"]["bytes"]) == (0, 7 * GB)
    assert "Rank" not in alone["verdict"]


def test_text_shows_the_numbers_of_json(lostflops, golden: Path) -> None:
    outcome = lostflops("memory", golden)
    assert (outcome.code, outcome.err) == (0, "")
    shown = " ".join(outcome.out.split())
    assert "Rank 1 peaks at 8.00 GB on cuda:0 in backward of step 7" in shown
    assert "activations 37.5%, temporaries 12.5%, unattributed 50.0%." in shown
    for owner, size, share in (
        ("activations", "3.00 GB", "37.5%"),
        ("temporaries", "1.00 GB", "12.5%"),
        ("unattributed", "4.00 GB", "50.0%"),
    ):
        assert re.search(rf"^  {owner} +{size} +{share}  ", outcome.out, re.MULTILINE)
        assert re.search(rf"^  {owner} +\S.*  +{size}$", outcome.out, re.MULTILINE)
    assert "parameters" not in outcome.out.split("Note:")[0]
    assert re.search(r"^  step +\|7$", outcome.out, re.MULTILINE)
    assert max(map(len, outcome.out.splitlines()[:-1])) <= 80


def test_bars_lie_side_by_side(lostflops, golden: Path) -> None:
    """Each owner's bar begins where that of the one before ends."""
    bars = re.findall(
        r"^  (?:activations|temporaries|unattributed) .*?%(  [ █]+)$", lostflops("memory", golden).out, re.MULTILINE
    )
    assert len(bars) == 3
    ends = [len(bar.rstrip()) for bar in bars]
    starts = [bar.index("█") for bar in bars]
    assert starts[0] == 2
    assert starts[1:] == ends[:-1]


def test_by(lostflops, golden: Path) -> None:
    by_op = answer(lostflops, golden, "--by", "op")
    check(by_op)
    assert by_op == answer(lostflops, golden) | {"notes": by_op["notes"]}


def test_markdown(lostflops, golden: Path) -> None:
    text = lostflops("memory", golden, "--markdown").out
    assert text.startswith("## Memory\n")
    assert "| activations | 3.00 GB | 37.5% | aten::gelu 1.50 GB, aten::linear 1.50 GB |" in text


def test_devices(lostflops, tmp_path: Path) -> None:
    """Accelerators come first; the host's memory is told where it is asked for."""
    host = [moved(11, 500, 9, total=500, device=(0, -1)), moved(13, -500, 9, total=0, device=(0, -1))]
    run = make_run(tmp_path, [*training(GB), *host])
    found = answer(lostflops, run)
    assert found["peak"]["device"] == "cuda:0"
    assert "Memory of cpu was recorded too: use --device cpu." in found["notes"]
    on_host = answer(lostflops, run, "--device", "cpu")
    check(on_host)
    assert (on_host["peak"]["device"], on_host["peak"]["bytes"]) == ("cpu", 500)
    assert on_host["verdict"].startswith("Memory (window only) peaks at 500 B on cpu")
    assert any("does not see memory that was allocated before the window" in note for note in on_host["notes"])
    assert answer(lostflops, run, "--device", "cuda:0")["peak"] == found["peak"]
    outcome = lostflops("memory", run, "--device", "cuda:3")
    assert outcome.code == 2
    assert outcome.err == "lostflops: no memory of 'cuda:3' was recorded; there is cpu, cuda, cuda:0\n"


def test_a_run_without_memory_says_how_to_record_it(lostflops, without: Path) -> None:
    outcome = lostflops("memory", without)
    assert outcome.code == 0
    assert "No memory events were recorded." in outcome.out
    assert "lostflops run --with shapes,modules,samples,memory -- CMD" in " ".join(outcome.out.split())
    found = answer(lostflops, without)
    assert (found["peak"], found["owners"], found["ranks"], found["unattributed_share"]) == (None, [], [], None)


def test_a_rank_without_memory_is_named(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, make_run(tmp_path, training(GB), BUSY))
    check(found)
    assert any(note.startswith("Rank 1 recorded no memory events") for note in found["notes"])


def test_an_unknown_rank_is_refused(lostflops, golden: Path) -> None:
    outcome = lostflops("memory", golden, "--rank", "9")
    assert (outcome.code, outcome.err) == (2, "lostflops: the run has no rank 9; it has 0, 1\n")


def test_the_next_command(lostflops, golden: Path, without: Path) -> None:
    assert lostflops("memory", golden).out.splitlines()[-1] == f"Next: lostflops whatif {golden} --all"
    assert lostflops("memory", without).out.splitlines()[-1] == f"Next: lostflops doctor {without}"


def test_the_next_command_against_activations_is_which_of_them_to_compute_again() -> None:
    owners = [{"owner": "activations", "bytes": 2}, {"owner": "parameters", "bytes": 1}]
    found = {"peak": {}, "growth": [], "owners": owners, "ranks": [0, 1], "layers": []}
    assert _next(found, Path("run"), MemoryBy.LAYER) == "lostflops memory run --frontier"


def test_the_next_command_behind_the_frontier_asks_for_time(lostflops, golden: Path) -> None:
    choices = [{"peak": 30, "change": None}, {"peak": 20, "change": "recompute=a"}]
    assert _suggest_whatif({"frontier": choices}, Path("run")) == "lostflops whatif run --change recompute=20B"
    assert is_size("20B")
    assert lostflops("memory", golden, "--frontier").out.splitlines()[-1] == f"Next: lostflops doctor {golden}"
    assert lostflops("memory", golden, "--frontier", "--device", "cpu").code == 2
    assert "the run has no rank 9" in lostflops("memory", golden, "--frontier", "--rank", "9").err


def test_the_report_has_a_line(lostflops, golden: Path, without: Path) -> None:
    found = json.loads(lostflops("report", golden, "--no-findings", "--json").out)["memory"]
    told = answer(lostflops, golden)
    assert (found["bytes"], found["rank"]) == (told["peak"]["bytes"], told["peak"]["rank"])
    assert (found["owner"], found["unattributed_share"]) == ("unattributed", told["unattributed_share"])
    shown = " ".join(lostflops("report", golden, "--no-findings", "--full").out.split())
    assert "8.00 GB on cuda:0 of rank 1 in backward of step 7: activations 37.5%, temporaries 12.5%" in shown
    assert "memory" not in json.loads(lostflops("report", without, "--no-findings", "--json").out)
    assert json.loads(lostflops("report", golden, "--rank", "0", "--json").out)["memory"]["bytes"] == 7 * GB


def test_how_a_job_ran_out_of_memory_comes_first(lostflops, runs) -> None:
    """Also where no memory events were recorded."""
    state = {"asked": 5 * GB, "step": 41, "phase": "backward", "device": "cuda:0", "owners": {"parameters": GB}}
    job = [{"rank": 0, "attempt": 0, "key": "out_of_memory", "value": json.dumps(state)}]
    runs["run"] = lambda: MemoryRun(ranks=[{"rank": 0, "events": 0}], job=job)
    assert "Rank 0 ran out of memory: it asked for 5.00 GB on cuda:0 in step 41" in " ".join(
        lostflops("memory", "run").out.split()
    )
    found = answer(lostflops, "run")
    assert (found["peak"], found["out_of_memory"]["asked"]) == (None, 5 * GB)
    assert found["out_of_memory"]["owners"] == [{"owner": "parameters", "bytes": GB, "share": 1.0}]


@needs_traces
@pytest.mark.parametrize(
    "trace",
    [
        "AMD-AGI__TraceLens/h100_gaunernst_bert-small-uncased__1016001.json.gz",
        pytest.param(
            "facebookresearch__HolisticTraceAnalysis/df_index_resolver__df_index_resolver.json.gz",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "pytorch__kineto/tb_plugin__samples__resnet50_num_workers_0__worker0.1623143566756.pt.trace.json.gz",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_memory_of_real_traces(lostflops, tmp_path: Path, trace: str) -> None:
    """It closes, and where the allocator tells its total, the peak is the largest of these."""
    ingest([TRACES / trace], tmp_path / "run", workers=1)
    found = answer(lostflops, tmp_path / "run")
    check(found)
    with Run.open(tmp_path / "run") as run:
        ((most,),) = run.sql("select max(allocated) from memory where device_type = 1").fetchall()
    assert most is None or found["peak"]["bytes"] == most
    assert lostflops("memory", tmp_path / "run").code == 0
