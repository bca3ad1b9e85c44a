"""What holds for the JSON of every report, whatever the run: it closes, to the nanosecond."""

import json
from itertools import pairwise
from typing import Any

import pytest

LINES = (
    "compute",
    "comm.transfer",
    "comm.wait",
    "comm.bubble",
    "copy",
    "idle.data",
    "idle.sync",
    "idle.alloc",
    "idle.compile",
    "idle.host",
    "idle.python",
    "idle.dependency",
    "idle.bubble",
    "unexplained",
)
COMM = ("comm.transfer", "comm.wait", "comm.bubble")
IDLE = (*(line for line in LINES if line.startswith("idle.")), "unexplained")

KEYS = {
    "schema",
    "title",
    "verdict",
    "notes",
    "window",
    "ledger",
    "ranks",
    "overlap",
    "mfu",
    "losses",
    "phases",
    "annotations",
    "modules",
    "layers",
    "where",
    "worst_ranks",
    "throughput",
    "utilization",
    "quality",
}
BOUND = ("compute", "memory", "communication", "input", "host")
LISTED = 12
"""The most annotations that a report lists."""


def line_sums(report: dict[str, Any]) -> dict[str, int]:
    return {line["line"]: line["ns"] for line in report["ledger"]["lines"]}


def check_report(report: dict[str, Any]) -> None:
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["schema"] == "lostflops.report/3"
    assert report.keys() >= KEYS
    _check_ledger(report["ledger"])
    _check_ranks(report)
    _check_overlap(report)
    _check_mfu(report)
    _check_utilization(report)
    _check_losses(report)
    _check_breakdowns(report)
    quality, total = report["quality"], report["ledger"]["total_ns"]
    assert quality["unexplained_ns"] == line_sums(report)["unexplained"]
    assert quality["unexplained"] == (quality["unexplained_ns"] / total if total else 0)
    assert quality["ranks_seen"] == len(report["ranks"])
    assert 0 <= quality["kernels_without_launch"] <= quality["kernels"]


def _check_ledger(ledger: dict[str, Any]) -> None:
    assert ledger.keys() == {"total_ns", "lines"}
    assert tuple(line["line"] for line in ledger["lines"]) == LINES
    assert sum(line["ns"] for line in ledger["lines"]) == ledger["total_ns"]
    whole = ledger["total_ns"] or 1
    for line in ledger["lines"]:
        assert line.keys() == {"line", "ns", "share", "parts"}
        assert isinstance(line["ns"], int)
        assert line["ns"] >= 0
        assert line["share"] == line["ns"] / whole
        if line["parts"]:
            assert sum(part["ns"] for part in line["parts"]) == line["ns"], f"parts of {line['line']}"
        assert all(part.keys() == {"line", "ns", "share", "parts"} for part in line["parts"])
        assert all(part["ns"] >= 0 and part["share"] == part["ns"] / whole for part in line["parts"])


def _check_ranks(report: dict[str, Any]) -> None:
    window, ranks = report["window"], report["ranks"]
    assert window.keys() == {"kind", "ranks", "steps", "wall_ns"}
    assert window["kind"] in {"steps", "trace"}
    assert window["ranks"] == [rank["rank"] for rank in ranks] == sorted(window["ranks"])
    assert window["steps"] == sorted(window["steps"])
    assert window["wall_ns"] == max((rank["wall_ns"] for rank in ranks), default=0)
    assert window["kind"] == "steps" or window["steps"] == []
    for rank in ranks:
        assert rank.keys() == {"rank", "wall_ns", "lines"}
        assert tuple(rank["lines"]) == LINES
        assert all(isinstance(ns, int) and ns >= 0 for ns in rank["lines"].values())
        assert sum(rank["lines"].values()) == rank["wall_ns"]
    assert sum(rank["wall_ns"] for rank in ranks) == report["ledger"]["total_ns"]
    assert line_sums(report) == {line: sum(rank["lines"][line] for rank in ranks) for line in LINES}


def _check_overlap(report: dict[str, Any]) -> None:
    overlap, lines = report["overlap"], line_sums(report)
    assert overlap.keys() == {"compute_ns", "comm_ns", "hidden_ns", "exposed_ns", "efficiency"}
    assert overlap["compute_ns"] == lines["compute"]
    assert overlap["exposed_ns"] == sum(lines[line] for line in COMM)
    assert overlap["hidden_ns"] + overlap["exposed_ns"] == overlap["comm_ns"]
    assert 0 <= overlap["hidden_ns"] <= overlap["compute_ns"]
    if overlap["efficiency"] is None:
        assert overlap["hidden_ns"] == 0
    else:
        assert 0 <= overlap["efficiency"] <= 1
        most = min(overlap["compute_ns"], overlap["comm_ns"])
        if len(report["ranks"]) == 1:
            assert overlap["efficiency"] == overlap["hidden_ns"] / most


def _check_mfu(report: dict[str, Any]) -> None:
    mfu, lines = report["mfu"], line_sums(report)
    assert mfu.keys() == {"value", "reason", "convention", "waterfall"}
    bars = [(bar["line"], bar["points"]) for bar in mfu["waterfall"]]
    if not report["ledger"]["total_ns"]:
        assert (mfu["value"], bars) == (None, [])
        assert mfu["reason"]
        return
    assert sum(points for _, points in bars) == pytest.approx(100, abs=1e-9)
    assert all(points >= 0 for _, points in bars)
    # Bars of the ledger stand in its order, and those inside compute after them.
    lost = [line for line in LINES if lines[line] and line != "compute"]
    assert [line for line, _ in bars if line in LINES and line != "compute"] == lost
    for line, points in bars:
        if line in LINES:
            assert points == pytest.approx(100 * lines[line] / report["ledger"]["total_ns"], rel=1e-12)
    if mfu["value"] is None:
        assert mfu["reason"]
        assert not mfu["convention"]
        assert bars[-1][0] == "compute"
    else:
        assert mfu["convention"]
        assert not mfu["reason"]
        assert bars[-1] == ("mfu", 100 * mfu["value"])
        assert 0 <= mfu["value"] <= 1


def _check_losses(report: dict[str, Any]) -> None:
    lines = line_sums(report)
    largest = sorted((ns for line, ns in lines.items() if line != "compute" and ns), reverse=True)
    assert [loss["ns"] for loss in report["losses"]] == largest[:3]
    for loss in report["losses"]:
        assert loss.keys() == {"line", "ns", "share", "meaning", "evidence", "rank", "event"}
        assert lines[loss["line"]] == loss["ns"]


def _check_breakdowns(report: dict[str, Any]) -> None:
    total = report["ledger"]["total_ns"]
    for name in ("phases", "annotations"):
        rows = report[name]
        assert all(before["ns"] >= after["ns"] for before, after in pairwise(rows))
        assert all(row["compute"] + row["comm"] + row["copy"] + row["idle"] == pytest.approx(1) for row in rows)
        if len(rows) < LISTED:
            assert sum(row["ns"] for row in rows) == total, name
        else:
            assert sum(row["ns"] for row in rows) <= total
    for name in ("modules", "layers"):
        if report[name]:
            sums = {line: sum(row["lines"][line] for row in report[name]) for line in LINES}
            assert sums == line_sums(report), name
    assert {row["name"] for row in report["phases"]} <= {"forward", "backward", "optimizer", "data", "other"}
    assert report["worst_ranks"][0]["rank"] == "mean"


def _check_utilization(report: dict[str, Any]) -> None:
    """HFU is MFU and the recomputed FLOPs; the words of a bound hold the lines that have a word, and no time twice."""
    used, lines, total = report["utilization"], line_sums(report), report["ledger"]["total_ns"]
    assert used["mfu"] == report["mfu"]["value"]
    given = "(given)" in report["mfu"]["convention"].split(" over ")[0]
    if used["mfu"] is not None and not given:
        bars = {bar["line"]: bar["points"] for bar in report["mfu"]["waterfall"]}
        assert 100 * used["hfu"] == pytest.approx(bars["mfu"] + bars.get("compute.recomputation", 0))
    shares = {word: used[f"{word}_bound"] for word in BOUND}
    assert all(share >= 0 for share in shares.values())
    unnamed = sum(lines[line] for line in ("comm.bubble", "idle.dependency", "idle.bubble", "unexplained"))
    named = sum(shares.values()) * total
    assert total - unnamed - lines["comm.wait"] - 1 <= named <= total - unnamed + 1
    ranked = sorted(shares.values(), reverse=True)
    if not total:
        assert used["bound"] is None
    elif used["bound"] == "balanced":
        assert ranked[0] < 1.25 * ranked[1]
    elif used["bound"] is None:
        assert ranked[0] <= 1 - sum(ranked)
    else:
        assert shares[used["bound"]] == ranked[0] >= 1.25 * ranked[1]
