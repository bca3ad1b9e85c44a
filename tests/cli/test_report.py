"""`lostflops report`: its JSON contract, its screen, its options, and all four verbs of analysis on strange runs."""

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from tests.cli.mini_traces import (
    BUSY,
    BUSY_LINES,
    CALM,
    CALM_LINES,
    CPU_RANK,
    ELEMENTWISE,
    MATMUL,
    NCCL,
    collective,
    copy,
    kernel,
    launch,
    make_flight_run,
    make_run,
    note,
    op,
    step,
)

from lostflops.testing import LostRecords, SyntheticCluster, store
from report_checks import LINES, check_report, line_sums

VERBS = ("report", "steps", "kernels", "comm")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FLOPS = 65_536
"""Of each matrix product of the golden run."""


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("golden"), BUSY, CALM)


def answer(lostflops: Any, *words: str | Path) -> dict[str, Any]:
    outcome = lostflops(*words, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def whole(lines: dict[str, int]) -> dict[str, int]:
    return {line: lines.get(line, 0) for line in LINES}


# --- JSON -----------------------------------------------------------------------------------------------------------


def test_json_field_by_field(lostflops, golden: Path) -> None:
    found = answer(lostflops, "report", golden)
    check_report(found)
    assert found["schema"] == "lostflops.report/3"
    assert found["window"] == {"kind": "steps", "ranks": [0, 1], "steps": [10, 11], "wall_ns": 172_000}
    assert found["ranks"] == [
        {"rank": 0, "wall_ns": 172_000, "lines": whole(BUSY_LINES)},
        {"rank": 1, "wall_ns": 140_000, "lines": whole(CALM_LINES)},
    ]
    assert found["ledger"]["total_ns"] == 312_000
    held = {line["line"]: line for line in found["ledger"]["lines"] if line["ns"]}
    assert {name: line["ns"] for name, line in held.items()} == {
        "compute": 160_000,
        "comm.transfer": 20_000,
        "copy": 5_000,
        "idle.data": 20_000,
        "idle.host": 26_000,
        "idle.python": 66_000,
        "idle.dependency": 15_000,
    }
    assert {name: {part["line"]: part["ns"] for part in line["parts"]} for name, line in held.items()} == {
        "compute": {"matmul": 150_000, "elementwise": 10_000},
        "comm.transfer": {"0@0-1": 20_000},
        "copy": {"HtoD": 5_000},
        "idle.data": {},
        "idle.host": {"op dispatch": 8_000, "launch API": 18_000},
        "idle.python": {"no annotation": 64_000, "validation": 2_000},
        "idle.dependency": {},
    }
    assert held["copy"]["share"] == 5_000 / 312_000
    assert found["overlap"] == {
        "compute_ns": 160_000,
        "comm_ns": 25_000,
        "hidden_ns": 5_000,
        "exposed_ns": 20_000,
        "efficiency": 0.2,
    }
    assert found["quality"] == {
        "ranks_seen": 2,
        "world_size": 2,
        "records_dropped": 0,
        "kernels": 8,
        "kernels_without_launch": 0,
        "unexplained_ns": 0,
        "unexplained": 0.0,
    }


def test_json_of_what_the_ledger_is_split_by(lostflops, golden: Path) -> None:
    found = answer(lostflops, "report", golden)
    assert {row["name"]: row["ns"] for row in found["phases"]} == {
        "forward": 50_000,
        "backward": 20_000,
        "data": 20_000,
        "other": 222_000,
    }
    forward = next(row for row in found["phases"] if row["name"] == "forward")
    assert [forward[name] for name in ("compute", "comm", "copy", "idle")] == [0.6, 0.4, 0.0, 0.0]
    assert {row["name"]: row["ns"] for row in found["annotations"]} == {
        "forward": 50_000,
        "validation": 24_000,
        "no annotation": 238_000,
    }
    assert [(row["line"], row["ns"], row["rank"]) for row in found["losses"]] == [
        ("idle.python", 66_000, 1),
        ("idle.host", 26_000, 0),
        ("comm.transfer", 20_000, 0),
    ]
    assert "Longest 42.0 us before nvjet" in found["losses"][0]["evidence"]
    assert [(str(row["rank"]), row["wall_ns"]) for row in found["worst_ranks"]] == [
        ("mean", 156_000),
        ("0", 172_000),
        ("1", 140_000),
    ]


def test_throughput(lostflops, golden: Path) -> None:
    words = ("--tokens-per-step", "780", "--samples-per-step", "39")
    assert answer(lostflops, "report", golden, *words)["throughput"] == {
        "step_ns": 78_000,
        "slowest_step_ns": 86_000,
        "steps_per_second": pytest.approx(1e9 / 78_000),
        "tokens_per_second": pytest.approx(1e7),
        "samples_per_second": pytest.approx(5e5),
        "busy": pytest.approx(185 / 312),
    }
    assert answer(lostflops, "report", golden, "--window", "trace")["throughput"] == {
        "step_ns": None,
        "slowest_step_ns": None,
        "steps_per_second": None,
        "tokens_per_second": None,
        "samples_per_second": None,
        "busy": pytest.approx(185 / 312),
    }


def test_the_waterfall_with_a_given_peak(lostflops, golden: Path) -> None:
    """At 0.005 TFLOPS, 5 FLOPs a nanosecond, 4 products take 52.4 of the 60 us that their kernels ran."""
    found = answer(lostflops, "report", golden, "--rank", "0", "--peak-tflops", "0.005")
    check_report(found)
    needed = 4 * FLOPS / 5
    assert found["mfu"]["value"] == pytest.approx(needed / 172_000)
    assert found["mfu"]["reason"] == ""
    assert "0.005 TFLOPS (given)" in found["mfu"]["convention"]
    assert [(bar["line"], bar["points"]) for bar in found["mfu"]["waterfall"]] == [
        *((line, pytest.approx(100 * ns / 172_000)) for line, ns in BUSY_LINES.items() if line != "compute"),
        ("compute.no_model_flops", pytest.approx(100 * 10_000 / 172_000)),
        ("compute.below_achievable", pytest.approx(100 * (60_000 - needed) / 172_000)),
        ("mfu", pytest.approx(100 * needed / 172_000)),
    ]
    assert found["verdict"].startswith(
        "1 rank, 2 steps. MFU is 30%, HFU 30%. Bound by compute. Compute takes 41% of the time; "
    )


def test_the_waterfall_with_given_flops(lostflops, golden: Path) -> None:
    """60,000 FLOPs a step are 30,000 on each of 2 ranks; 2 steps of these take 12 us."""
    found = answer(lostflops, "report", golden, "--rank", "0", "--peak-tflops", "0.005", "--model-flops", "60000")
    check_report(found)
    assert found["mfu"]["value"] == pytest.approx(12_000 / 172_000)
    bars = {bar["line"]: bar["points"] for bar in found["mfu"]["waterfall"]}
    assert bars["compute.no_model_flops"] == pytest.approx(100 * 10_000 / 172_000)
    assert bars["compute.below_peak"] == pytest.approx(100 * 48_000 / 172_000)
    assert "60.0 kFLOP per step on 2 ranks (given)" in found["mfu"]["convention"]


# A receive that was launched ahead begins step 11 at 60, in the middle of a product of step 10.
AHEAD = (
    step(10, 0, 50),
    op("aten::mm", 2, 8, **MATMUL),
    launch(1, 4),
    kernel(1, 10, 40),
    op("aten::mm", 12, 8, **MATMUL),
    launch(2, 14),
    kernel(2, 50, 40),
    step(11, 50, 50),
    launch(3, 52),
    kernel(3, 60, 10, NCCL, 20, **collective("recv", 1_000_000, 1_000_000)),
    op("aten::mm", 60, 8, **MATMUL),
    launch(4, 64),
    kernel(4, 90, 40),
)


@pytest.mark.parametrize(("number", "products", "wall_ns"), [("10", 1.25, 50_000), ("11", 1.75, 70_000)])
def test_mfu_of_one_step_counts_what_ran_in_its_time(
    lostflops, tmp_path: Path, number: str, products: float, wall_ns: int
) -> None:
    run = make_run(tmp_path, AHEAD)
    found = answer(lostflops, "report", run, "--step", number, "--peak-tflops", "0.005")
    check_report(found)
    assert found["window"]["wall_ns"] == wall_ns
    assert (found["mfu"]["value"], found["mfu"]["reason"]) == (pytest.approx(products * FLOPS / 5 / wall_ns), "")
    (row,) = answer(lostflops, "kernels", run, "--step", number)["roofline_ops"]
    assert (row["flop"], row["ns"]) == (products * FLOPS, products * 40_000)


def test_the_peak_of_a_known_device(lostflops, golden: Path) -> None:
    mfu = answer(lostflops, "report", golden)["mfu"]
    assert mfu["value"] == pytest.approx(6 * FLOPS / (989_000 * 312_000), rel=1e-3)
    assert "dense bf16 peak of H100" in mfu["convention"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--peak-tflops", "0.004"), "109.2% of the time of matmul"),
        (("--model-flops", "1e12"), "Check --model-flops (for one step of all ranks together)"),
        (("--model-flops", "6e4", "--window", "trace"), "--model-flops is per step, and the window has no steps"),
    ],
)
def test_what_the_user_says_may_be_impossible(lostflops, golden: Path, words: tuple[str, ...], reason: str) -> None:
    found = answer(lostflops, "report", golden, "--rank", "0", *words)
    check_report(found)
    assert found["mfu"]["value"] is None
    assert reason in found["mfu"]["reason"]


@pytest.mark.parametrize(
    ("device", "shapes", "reason"),
    [
        ("Frobnicator 9000", True, "the peak of 'Frobnicator 9000' is unknown. Give"),
        ("", True, "the trace names no accelerator. Give the dense peak of one device with --peak-tflops."),
        ("NVIDIA H100 80GB HBM3", False, "Or give --peak-tflops and --model-flops."),
    ],
)
def test_unknown_mfu_says_why(lostflops, tmp_path: Path, device: str, shapes: bool, reason: str) -> None:
    events = [event if shapes else event | {"args": _without_shapes(event["args"])} for event in CALM]
    mfu = answer(lostflops, "report", make_run(tmp_path, events, device=device))["mfu"]
    assert mfu["value"] is None
    assert reason in mfu["reason"]


def _without_shapes(args: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if not name.startswith("Input")}


# --- options ----------------------------------------------------------------------------------------------------------


def test_one_rank(lostflops, golden: Path) -> None:
    found = answer(lostflops, "report", golden, "--rank", "1")
    check_report(found)
    assert line_sums(found) == whole(CALM_LINES)
    assert found["window"]["ranks"] == [1]
    twice = answer(lostflops, "report", golden, "--rank", "1", "--rank", "0", "--rank", "1")
    assert twice == answer(lostflops, "report", golden, "--no-findings")


def test_one_step(lostflops, golden: Path) -> None:
    found = answer(lostflops, "report", golden, "--rank", "0", "--step", "11")
    check_report(found)
    assert found["window"] == {"kind": "steps", "ranks": [0], "steps": [11], "wall_ns": 52_000}
    assert line_sums(found) == whole(
        {"compute": 30_000, "copy": 5_000, "idle.host": 10_000, "idle.python": 4_000, "idle.dependency": 3_000}
    )
    both = answer(lostflops, "report", golden, "--step", "11", "--step", "10")
    assert both["ranks"] == answer(lostflops, "report", golden)["ranks"]


def test_a_transfer_known_by_its_stream_is_one(lostflops, tmp_path: Path) -> None:
    """A third of the transfers between two stages lost what tells a send from a receive."""
    cluster = SyntheticCluster(ranks=2, pipeline_parallel=2, microbatches=4, lost=LostRecords(metadata=0.3)).generate()
    sums = line_sums(answer(lostflops, "report", store(cluster, tmp_path / "run", host_names=True)))
    assert sums["comm.wait"] == 0
    assert sums["comm.bubble"] == cluster.truth.lines["comm.bubble"] > 0


def test_the_window_of_the_trace(lostflops, tmp_path: Path) -> None:
    """A kernel launched before the first step is part of the trace, and of no step."""
    early = [launch(99, -16), kernel(99, -10, 5)]
    run = make_run(tmp_path, [{**event, "ts": event["ts"] + 100} for event in [*early, *CALM]])
    traced = answer(lostflops, "report", run, "--window", "trace")
    check_report(traced)
    assert traced["window"] == {"kind": "trace", "ranks": [0], "steps": [], "wall_ns": 160_000}
    assert line_sums(traced)["compute"] == 95_000
    stepped = answer(lostflops, "report", run, "--window", "steps")
    assert stepped == answer(lostflops, "report", run, "--no-findings")
    assert line_sums(stepped) == whole(CALM_LINES)


def test_steps_are_the_window_only_where_every_rank_has_one(lostflops, tmp_path: Path) -> None:
    without = [event for event in CALM if not event["name"].startswith("ProfilerStep")]
    run = make_run(tmp_path, CALM, without)
    assert answer(lostflops, "report", run)["window"]["kind"] == "trace"
    assert answer(lostflops, "report", run, "--rank", "0")["window"]["kind"] == "steps"
    stepped = answer(lostflops, "report", run, "--window", "steps")
    check_report(stepped)
    assert stepped["ledger"]["total_ns"] == 140_000


@pytest.mark.parametrize(
    ("by", "title", "rows"),
    [
        ("phase", "By phase of training, all ranks", ["forward", "backward", "data", "other"]),
        ("annotation", "By annotation", ["forward", "validation", "no annotation"]),
        ("rank", "By rank", ["mean", "0", "1"]),
    ],
)
def test_by(lostflops, golden: Path, by: str, title: str, rows: list[str]) -> None:
    text = lostflops("report", golden, "--by", by).out
    _, table = text.split(f"\n{title}\n")
    for row in rows:
        assert re.search(rf"^{row}  ", table.split("\n\n")[0], re.MULTILINE)
    assert "By " not in text.replace(title, "")
    plain, split = answer(lostflops, "report", golden), answer(lostflops, "report", golden, "--by", by)
    assert split == plain


# --- the screen -------------------------------------------------------------------------------------------------------


def test_the_first_screen(lostflops, golden: Path) -> None:
    short = lostflops("report", golden).out.splitlines()
    lines = lostflops("report", golden, "--full").out.splitlines()
    assert len(short) < len(lines)
    assert short[-1] == f"Or: lostflops report {golden} --full"
    assert lines[0] == "Where the time went"
    assert lines[1].startswith("2 ranks (NVIDIA H100 80GB HBM3), 78.0 us per step. MFU is <0.1%, HFU <0.1%. ")
    for title in (
        "From peak to model FLOPs (MFU)",
        "The ledger",
        "Largest losses",
        "By phase of training, all ranks",
        "Communication and compute, all ranks",
        "Throughput",
        "Data",
    ):
        assert title in lines
    assert any(line.split() == ["idle.python", "16.5", "us", "21.2%"] for line in lines)
    assert any(line.split() == ["total", "78.0", "us", "100.0%"] for line in lines)
    assert lines[-1] == f"Next: lostflops diagnose {golden}"


def test_a_pipe_gets_80_columns_and_no_codes(golden: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lostflops", "report", str(golden)],
        capture_output=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"}
        | {"FORCE_COLOR": "", "TERM": "xterm-256color"},
    )
    check_text(done.stdout.decode())
    assert done.stderr == b""


def test_a_stream_that_is_not_utf_8(golden: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lostflops", "kernels", str(golden)],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    check_text(done.stdout.decode("ascii"))


@pytest.mark.parametrize("verb", VERBS)
def test_80_columns(lostflops, golden: Path, verb: str) -> None:
    check_text(lostflops(verb, golden).out)


def check_text(text: str) -> None:
    """Fits 80 columns, whatever path the next command names; and nothing in it steers a terminal."""
    assert text.endswith("\n")
    lines = text.splitlines()
    commands = [line for line in lines if line.startswith(("Next: lostflops ", "Or: lostflops "))]
    assert commands == lines[-len(commands) :]
    assert max(cell_len(line) for line in lines if line not in commands) <= 80
    assert not [character for character in text if not character.isprintable() and character != "\n"]


def test_colour_on_a_terminal_unless_it_is_not_wanted(golden: Path) -> None:
    coloured = on_terminal("report", golden)
    assert has_colour(coloured)
    plain = on_terminal("report", golden, NO_COLOR="1")
    assert not has_colour(plain)
    # A terminal of 80 columns shows what a pipe gets; a coloured one the same in colour.
    assert COLOUR.sub("", coloured) == COLOUR.sub("", plain)
    assert max(cell_len(line) for line in COLOUR.sub("", plain).splitlines()[:-1]) <= 80


def has_colour(text: str) -> bool:
    """Whether any code sets a colour; bold and dim are none."""
    codes = [int(code) for found in COLOUR.findall(text) for code in found[2:-1].split(";") if code]
    return any(30 <= code <= 49 or 90 <= code <= 107 for code in codes)


def on_terminal(verb: str, run: Path, **environment: str) -> str:
    """What a verb writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    hidden = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
    own = {name: value for name, value in os.environ.items() if name not in hidden}
    process = subprocess.Popen(
        [sys.executable, "-m", "lostflops", verb, str(run)],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=own | {"TERM": "xterm-256color"} | environment,
    )
    os.close(theirs)
    pieces = []
    while piece := _read(ours):
        pieces.append(piece)
    os.close(ours)
    _, complaint = process.communicate()
    assert (process.returncode, complaint) == (0, b"")
    return b"".join(pieces).decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # how Linux says that the other end is closed
        return b""


@pytest.mark.parametrize("verb", VERBS)
def test_the_next_command_can_be_typed(lostflops, tmp_path: Path, verb: str) -> None:
    """And the one after it, and so on: none of them leads to an error."""
    run = make_run(tmp_path / "it's a run", BUSY, CALM)
    words, visited = [verb, str(run)], []
    while words not in visited:
        visited.append(words)
        outcome = lostflops(*words)
        assert outcome.code == 0, outcome.err
        (following,) = (line for line in outcome.out.splitlines() if line.startswith("Next: "))
        program, *words = shlex.split(following.removeprefix("Next: "))
        assert program == "lostflops"
        if "NEW_RUN" in words:  # one of the mended program, which is not there yet
            return
        assert words[1] == str(run)


@pytest.mark.parametrize(
    ("events", "verb"),
    [
        ([launch(1, 0), kernel(1, 5, 5), kernel(2, 5, 95, NCCL, 20)], "comm"),
        ([step(1, 0, 200), launch(1, 0), kernel(1, 5, 5), launch(2, 90), kernel(2, 95, 5)], "steps"),
        ([launch(1, 0), kernel(1, 5, 5), launch(2, 90), kernel(2, 95, 5)], "kernels"),
        ([launch(1, 0), kernel(1, 5, 5)], "kernels"),
    ],
)
def test_the_next_command_looks_into_the_largest_loss(lostflops, tmp_path: Path, events: list, verb: str) -> None:
    run = make_run(tmp_path, [op("aten::mm", 0, 100), *events])
    assert f"Next: lostflops {verb} {run}" in lostflops("report", run, "--no-findings").out.splitlines()


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rank", "7"), "the run has no rank 7; it has 0, 1"),
        (("--rank", "0", "--rank", "-1"), "the run has no rank -1; it has 0, 1"),
        (("--step", "3"), "no step 3 was recorded; recorded steps: 10, 11"),
        (("--step", "10", "--step", "12"), "no step 12 was recorded; recorded steps: 10, 11"),
    ],
)
def test_what_is_not_there(lostflops, golden: Path, verb: str, words: tuple[str, ...], message: str) -> None:
    outcome = lostflops(verb, golden, *words)
    assert (outcome.code, outcome.out, outcome.err) == (2, "", f"lostflops: {message}\n")


@pytest.mark.parametrize("verb", ["report", "kernels", "comm"])
def test_a_step_is_not_in_the_window_of_the_trace(lostflops, golden: Path, verb: str) -> None:
    outcome = lostflops(verb, golden, "--window", "trace", "--step", "10")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.endswith("--step does not work with --window trace: leave out one of them\n")


@pytest.mark.parametrize("verb", VERBS)
def test_no_steps(lostflops, tmp_path: Path, verb: str) -> None:
    run = make_run(tmp_path, [event for event in CALM if not event["name"].startswith("ProfilerStep")])
    outcome = lostflops(verb, run, *(() if verb == "steps" else ("--window", "steps")))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "lostflops: no steps were recorded: use --window trace, or call profiler.step() in the training loop\n"
    )
    asked = lostflops(verb, run, "--step", "1")
    assert (asked.code, asked.err) == (2, "lostflops: no step 1 was recorded; recorded steps: none\n")
    assert lostflops("report", run).code == 0


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("json_flag", [(), ("--json",)])
def test_not_a_run(lostflops, tmp_path: Path, verb: str, json_flag: tuple[str, ...]) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        outcome = lostflops(verb, path, *json_flag)
        assert (outcome.code, outcome.out) == (5, "")
        assert str(path) in outcome.err
        assert "lostflops ingest" in outcome.err


@pytest.mark.parametrize(
    "words",
    [
        ("--window", "week"),
        ("--by", "moon"),
        ("--peak-tflops", "0"),
        ("--peak-tflops", "-1"),
        ("--peak-tflops", "nan"),
        ("--peak-tflops", "fast"),
        ("--model-flops", "0"),
        ("--model-flops", "nan"),
        ("--tokens-per-step", "0"),
        ("--samples-per-step", "-5"),
        ("--rank", "first"),
        ("--step", "1.5"),
    ],
)
def test_usage_errors(lostflops, golden: Path, words: tuple[str, str]) -> None:
    outcome = lostflops("report", golden, *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert words[0] in outcome.err


@pytest.mark.parametrize("flops", ["inf", "1e400"])
def test_infinitely_many_flops(lostflops, golden: Path, flops: str) -> None:
    assert lostflops("report", golden, "--model-flops", flops).code in {0, 2}


# --- strange runs -----------------------------------------------------------------------------------------------------

EVIL = "\x1b[31mred\x1b]0;title\x07\x00\n\r\t[bold]markup[/bold] :smile: \u202e\u200d漢字 '; drop table events; --"
LONG = "L" * 5_000


def hostile_events() -> list[dict[str, Any]]:
    found = [step(1, 0, 1_000)]
    for number, name in enumerate((EVIL, LONG, EVIL + LONG, "漢字" * 300, "{unknown}")):
        start = 10 + 100 * number
        metadata = collective(name, 10, 10, group=name) | {"dtype": name}
        found += [
            note(name, start, 60),
            op(name, start + 1, 8),
            launch(number, start + 2),
            kernel(number, start + 20, 15, name),
            launch(100 + number, start + 12, name=name),
            kernel(100 + number, start + 25, 30, f"nccl {name}", 9, **metadata),
            launch(200 + number, start + 15),
            copy(200 + number, start + 70, 5, f"Memcpy {name}"),
        ]
    return found


STRANGE = {
    "a CPU rank": lambda folder: make_run(folder, CPU_RANK, device=""),
    "device events alone": lambda folder: make_run(
        folder, [kernel(1, 0, 6), kernel(2, 10, 6, ELEMENTWISE), kernel(3, 14, 9, NCCL, 20)]
    ),
    "launches without ops": lambda folder: make_run(
        folder, [launch(1, 0), kernel(1, 5, 6), launch(2, 20), kernel(2, 30, 6)]
    ),
    "a kernel that takes no time": lambda folder: make_run(folder, [step(1, 0, 9), launch(1, 1), kernel(1, 5, 0)]),
    "an op that takes no time": lambda folder: make_run(folder, [op("aten::mm", 5, 0)], device=""),
    "events without names": lambda folder: make_run(folder, [op("", 5, 9), op("", 50, 9)], device=""),
    "steps without any work": lambda folder: make_run(folder, [step(1, 0, 10), step(2, 10, 10)]),
    "a step in which nothing is launched": lambda folder: make_run(folder, [*CALM, step(12, 200, 50)]),
    "annotations alone": lambda folder: make_run(folder, [note("nothing else", 0, 10)]),
    "hostile names": lambda folder: make_run(folder, hostile_events(), device=EVIL),
    "the Flight Recorder alone": make_flight_run,
    "a thousand annotations": lambda folder: make_run(
        folder,
        [
            event
            for n in range(1_000)
            for event in (note(f"layer {n}", 20 * n, 18), launch(n, 20 * n + 1), kernel(n, 20 * n + 5, 7))
        ],
    ),
    "ranks with different steps": lambda folder: make_run(folder, CALM, [*CALM[1:4], step(7, 0, 100)]),
    "a rank without steps": lambda folder: make_run(folder, CALM, [*CALM[1:4], *CALM[5:]]),
}


SELDOM = {
    "a kernel that takes no time", "events without names", "launches without ops",
    "a step in which nothing is launched", "annotations alone", "a rank without steps",
}  # fmt: skip
"""Each is close to another one that is always tried."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name in SELDOM else (), id=name) for name in STRANGE],
)
def strange(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return STRANGE[request.param](tmp_path_factory.mktemp("strange"))


@pytest.mark.few(3)
def test_strange_runs(lostflops, strange: Path) -> None:
    """Every verb answers in both forms, or says what to do."""
    for verb in VERBS:
        shown, told = lostflops(verb, strange), lostflops(verb, strange, "--json")
        assert (shown.code, shown.err) == (told.code, told.err)
        if shown.code:
            assert (verb, shown.code) == ("steps", 2)
            assert shown.err.startswith("lostflops: no steps were recorded: use --window trace")
            continue
        check_text(shown.out)
        assert json.loads(told.out)["schema"].rpartition("/")[0] == f"lostflops.{verb}"
    for window in ("trace", "steps"):
        outcome = lostflops("report", strange, "--window", window, "--json")
        if outcome.code:
            assert (window, outcome.code) == ("steps", 2)
            assert outcome.err.startswith("lostflops: no steps were recorded: use --window trace")
        else:
            check_report(json.loads(outcome.out))


@pytest.mark.parametrize("event", [op("", 1, 8), kernel(1, 1, 8, ""), note("", 1, 8)], ids=["op", "kernel", "note"])
def test_an_event_without_a_name(lostflops, tmp_path: Path, event: dict[str, Any]) -> None:
    run = make_run(tmp_path, [*CALM, event])
    for verb in VERBS:
        check_text(lostflops(verb, run).out)


def test_a_cpu_rank(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, "report", make_run(tmp_path, CPU_RANK, device=""))
    assert line_sums(found) == whole({"compute": 50_000, "comm.transfer": 20_000, "idle.python": 30_000})
    assert found["overlap"]["hidden_ns"] == 10_000
    assert found["overlap"]["efficiency"] == 10 / 30
    assert found["notes"] == ["Only one rank was recorded: comm.transfer includes its waits for other ranks."]


def test_an_accelerator_that_recorded_nothing_is_named(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, "report", make_run(tmp_path, [event for event in CALM if event["cat"] != "kernel"]))
    assert any("recorded no device events, so this shows the training thread" in note for note in found["notes"])


def test_device_events_alone_are_unexplained(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, "report", make_run(tmp_path, [kernel(1, 0, 6), kernel(2, 10, 6)]))
    assert line_sums(found) == whole({"compute": 12_000, "unexplained": 4_000})
    assert found["quality"]["kernels_without_launch"] == 2
    assert found["quality"]["unexplained"] == 0.25
    assert any("25.0% is unexplained: the kernels after these gaps have no launch" in note for note in found["notes"])


def test_the_flight_recorder_alone(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, "report", make_flight_run(tmp_path))
    assert found["verdict"] == "2 ranks (nccl). No rank recorded any time in this window."
    assert (found["window"]["ranks"], found["window"]["steps"], found["window"]["wall_ns"]) == ([], [], 0)
    assert found["notes"] == ["2 ranks recorded no time in this window, and count nowhere."]
    assert (found["ledger"]["total_ns"], found["ranks"], found["quality"]["ranks_seen"]) == (0, [], 0)


def test_ranks_of_a_cpu_and_of_a_device(lostflops, tmp_path: Path) -> None:
    found = answer(lostflops, "report", make_run(tmp_path, CALM, CPU_RANK))
    assert [rank["wall_ns"] for rank in found["ranks"]] == [140_000, 100_000]
    assert line_sums(found) == whole(
        {"compute": 140_000, "comm.transfer": 20_000, "idle.host": 8_000, "idle.python": 72_000}
    )


def test_parts_close_when_ranks_differ_in_kind(lostflops, tmp_path: Path) -> None:
    check_report(answer(lostflops, "report", make_run(tmp_path, CALM, CPU_RANK)))
