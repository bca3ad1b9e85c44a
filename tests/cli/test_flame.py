"""`lostflops flame`, and what the report says of samples: a device waits for Python, and stacks at known instants."""

import json
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from memory_run import MemoryRun

LOG = "main /job/train.py:3;log /job/train.py:9"
SAVE = "main /job/train.py:4;save /venv/lib/python3.12/site-packages/torch/serialization.py:70"
RUN = "main /job/train.py:5;forward /job/model.py:8"
SVG = "{http://www.w3.org/2000/svg}"


def event(number: int, kind: str, lane: int, start: int, stop: int, correlation: int | None = None) -> dict[str, Any]:  # noqa: PLR0917
    names = {"op": "aten::mm", "runtime": "cudaLaunchKernel", "kernel": "gemm"}
    common = {"rank": 0, "event": number, "kind": kind, "name": names[kind], "correlation": correlation}
    return {**common, "lane": lane, "start": start, "dur": stop - start}


def made(samples: list[tuple[int, str]]) -> MemoryRun:
    """Computes in [30, 100) and [1070, 1200); between, Python runs until 1000, and an op until the launch."""
    events = [
        event(0, "op", 1, 0, 100),
        event(1, "runtime", 1, 10, 20, 1),
        event(2, "kernel", 7, 30, 100, 1),
        event(3, "op", 1, 1000, 1100),
        event(4, "runtime", 1, 1050, 1060, 2),
        event(5, "kernel", 7, 1070, 1200, 2),
    ]
    return MemoryRun(
        ranks=[{"rank": 0, "events": 6}],
        events=events,
        samples=[{"rank": 0, "time": time, "stack": stack} for time, stack in samples],
    )


SAMPLES = [
    *((time, LOG) for time in range(150, 750, 100)),
    *((time, SAVE) for time in (100, 800, 999)),
    *((time, RUN) for time in (1000, 1040)),
    *((time, RUN) for time in (30, 60, 99)),
    (29, LOG),
    (1200, LOG),
]
"""Six and three on `idle.python`, two on `idle.host`, three while the device computes, two outside the window. Each
stands for the time of its line since the one before: LOG for 550 of `idle.python`, SAVE for 0 + 150 + 200."""


@pytest.fixture
def flame(lostflops, runs):
    runs["run"] = lambda: made(SAMPLES)
    return lambda *words: lostflops("flame", "run", *words)


def test_samples_stand_on_the_line_of_their_instant(flame) -> None:
    few, python = "idle.host;too few samples 70", [f"idle.python;{LOG} 550", f"idle.python;{SAVE} 350"]
    assert flame("--collapsed").out.splitlines() == [few, *python]
    assert flame("--collapsed", "--line", "idle.host").out.splitlines() == [few]
    assert flame("--collapsed", "--all").out.splitlines() == ["compute;too few samples 200", few, *python]


def test_json(flame) -> None:
    found = json.loads(flame("--json").out)
    assert found.keys() == {"schema", "title", "verdict", "notes", "lines", "functions", "stacks"}
    assert found["verdict"] == ("56.7% of 970 ns of host time is in log /job/train.py:9 (11 samples from 1 rank).")
    assert [(row["line"], row["ns"], row["samples"], row["where"]) for row in found["lines"]] == [
        ("idle.python", 900, 9, "log /job/train.py:9"),
        ("idle.host", 70, 2, "too few samples"),
    ]
    # What torch does for the program is named by the program's line.
    assert [(row["function"], row["place"], row["ns"], row["samples"]) for row in found["functions"]] == [
        ("log", "/job/train.py:9", 550, 6),
        ("main", "/job/train.py:4", 350, 3),
    ]
    assert {"stack": ["idle.python", *LOG.split(";")], "samples": 6, "ns": 550} in found["stacks"]


def test_the_report_says_where_the_host_was(lostflops, runs) -> None:
    runs["run"] = lambda: made(SAMPLES)
    found = json.loads(lostflops("report", "run", "--json").out)
    evidence = {row["line"]: row["evidence"] for row in found["losses"]}
    said = "Host in log /job/train.py:9 61.1%, main /job/train.py:4 38.9% (by 9 samples)"
    assert evidence["idle.python"].endswith(said)
    assert evidence["idle.host"].endswith("Too few samples to show where in the program: 2 samples")
    assert [(row["line"], row["function"], row["ns"], row["samples"], row["of"]) for row in found["where"]] == [
        ("idle.python", "log", 550, 6, 9),
        ("idle.python", "main", 350, 3, 9),
    ]


def test_a_call_that_holds_the_lock_counts_for_as_long_as_it_does(lostflops, runs) -> None:
    """It lets nobody look: one sample when it returns, where a loop of the same length has many."""
    runs["run"] = lambda: made([*((time, LOG) for time in range(145, 551, 45)), (999, SAVE)])
    found = {row["function"]: row["ns"] for row in json.loads(lostflops("flame", "run", "--json").out)["functions"]}
    assert found == {"log": 450, "main": 450}


def test_without_samples_the_report_is_silent_and_flame_cannot_tell(lostflops, runs) -> None:
    runs["run"] = lambda: made([])
    found = json.loads(lostflops("report", "run", "--json").out)
    assert found["where"] == []
    assert all("sample" not in row["evidence"] for row in found["losses"])
    assert "The run has no stack samples" in lostflops("flame", "run").out


def test_too_few_samples_cannot_tell(lostflops, runs) -> None:
    runs["run"] = lambda: made([(200, LOG)] * 4)
    assert json.loads(lostflops("flame", "run", "--json").out)["verdict"].startswith("Too few stack samples: 4 samples")


def test_the_graph(flame, tmp_path) -> None:
    """Each bar is as wide as its share, lies inside its parent, and says in full what it is."""
    path = tmp_path / "lost.svg"
    outcome = flame("-o", path)
    assert (outcome.code, outcome.err) == (0, "")
    bars = {}
    for group in ET.parse(path).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        title = group.findtext(f"{SVG}title")
        bars[title] = tuple(float(rect.get(name)) for name in ("x", "y", "width"))
    whole = 1200 - 2 * 12
    widths = {title.split("\n")[0]: width + 1 for title, (_, _, width) in bars.items()}
    assert widths["idle.python"] == pytest.approx(whole * 900 / 970, abs=0.02)
    assert widths["log /job/train.py:9"] == pytest.approx(whole * 550 / 970, abs=0.02)
    assert "log /job/train.py:9\n550 ns, 56.7%, 6 samples" in bars
    assert "too few samples\n70 ns, 7.2%, 2 samples" in bars
    rows = sorted({y for _, y, _ in bars.values()})
    assert len(rows) == 3, "line, main, and what it called"
    for y in rows:
        row = sorted((x, width) for x, top, width in bars.values() if top == y)
        assert all(x + width <= after for (x, width), (after, _) in pairwise(row))


def test_small_branches_are_not_drawn_and_counted(lostflops, runs, tmp_path) -> None:
    rare = [(200, f"main /job/train.py:3;rare /job/r.py:{line}") for line in range(5)]
    runs["run"] = lambda: made([*((time % 900 + 100, LOG) for time in range(2000)), *rare])
    lostflops("flame", "run", "-o", tmp_path / "lost.svg")
    text = (tmp_path / "lost.svg").read_text(encoding="utf-8")
    assert "rare" not in text
    assert "Not drawn: 5 frames with less than 0.3% of the time." in text


def test_what_cannot_be_told_is_said_in_one_piece(lostflops, runs, tmp_path) -> None:
    runs["run"] = lambda: made([*((time, LOG) for time in range(150, 350, 20)), (1040, RUN)])
    lostflops("flame", "run", "-o", tmp_path / "lost.svg")
    labels = [text.text or "" for text in ET.parse(tmp_path / "lost.svg").iter(f"{SVG}text")]
    assert [label for label in labels if "too few" in label] == ["too few sa…"]


def test_what_cannot_be_asked(flame) -> None:
    assert "no line idle.nothing" in flame("--line", "idle.nothing").err
    assert flame("--all", "--line", "idle.host").code == 2
    assert flame("--collapsed", "--json").code == 2
