import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from lostflops.core.estimate import Estimate, Kind, Strength
from lostflops.core.results import (
    Evidence,
    Field,
    Finding,
    Findings,
    HeatMap,
    Line,
    Lines,
    Pair,
    Pairs,
    Plot,
    Portion,
    Portions,
    Prediction,
    Result,
    Section,
    Series,
    Stacks,
    Table,
    Timeline,
)
from lostflops.show.report import RENDERERS, renderer
from lostflops.show.report.values import format_value

HOSTILE = "kernel[bold red]<4>\x1b[31m\nnext :smile: " + "x" * 200
LINES = Lines("l", "L", (Line("idle", 40, 0.4, (Line("idle.data", 40, 0.4),)),), 40)
FINDING = Finding(
    "sync:0", "found", "sync", "The host waits", 10_000, 0.1, 2.4, 6.0, (0,), (Evidence("12 calls"),), Strength.STRONG,
    0.93, "stacks", "less", {"idle.sync": 10_000}, Estimate(0.1, 0.05, 0.2, Kind.REPLAYED, "replaying the run"),
    Prediction("p", "c", 100_000, 90_000, 80_000, 95_000, 0.02),
)  # fmt: skip


def plot(*series: Series, title: str = "P", unit="ns", **scales: bool) -> Result:
    axes = (Field("bytes", "bytes", "size"), Field("y", unit, title))
    return Result("plot", "Plot", "v", (Plot("p", title, *axes, series, **scales),))


RESULTS = {
    "plot": plot(
        Series("a: measured", "marks", ((1_000, 5_000), (1_000_000, 9_000), (10**9, 4_000_000))),
        Series("a: fitted", "line", ((1_000, 6_000), (1_000_000, 8_000), (10**9, 4_000_000))),
    ),
    "hostile plot": plot(*(Series(f"{HOSTILE}{i}", "marks", ((i + 1, i + 1),)) for i in range(40)), title=HOSTILE),
    "no plot": plot(),
    "empty plot": plot(Series("none", "line", ()), Series("none", "marks", ())),
    "one point": plot(Series("one", "marks", ((1, 1),)), Series("one", "line", ((1, 1),))),
    "one zero": plot(Series("zero", "line", ((0, 0),)), log_x=False, log_y=False),
    "nothing above zero": plot(Series("zero", "line", ((0, 1), (1, 0), (-1, -1)))),
    "below zero": plot(Series("some", "line", ((0, 1), (1, -2), (2, 3)))),
    "shares": plot(Series("s", "marks", ((1, -0.1), (2, 0.1))), unit="share", log_y=False),
    "extremes": plot(Series("s", "line", ((1e-300, 1e-300), (1e300, 1e300)))),
    "times": plot(Series("s", "line", ((1, 1.7e18), (2, 1.8e18))), unit="time", log_y=False),
    "bare": Result("bare", "Bare", "Nothing to say."),
    "pairs": Result("pairs", "Pairs", "v", (Pairs("p", "P", (Pair("a", 1_500_000, "ns"), Pair("b", None, "bytes"))),)),
    "table": Result(
        "table", "Table", "v", (Table("t", "T", (Field("name"), Field("dur", "ns")), ((HOSTILE, 2_000), ("b", 1)), 7),)
    ),
    "wide": Result(
        "wide", "Wide", "v", (Table("t", "T", tuple(Field(f"column_{i}") for i in range(30)), ((1,) * 30,)),)
    ),
    "empty": Result("empty", "Empty", "v", (Table("t", "T", (Field("name"),), ()),)),
    "lines": Result(
        "lines", "Lines", "v", (Lines("l", "L", (Line("idle", 40, 0.4, (Line("idle.data", 40, 0.4),)),), 40),)
    ),
    "findings": Result("findings", "Findings", "v", (Findings("f", "F", (FINDING,)),)),
    "heat map": Result(
        "heat", "Heat", "v", (HeatMap("h", HOSTILE, ((HOSTILE, (0.0, None, 4.0) * 30),), "ns", HOSTILE),)
    ),
    "heat map with columns": Result(
        "heat",
        "Heat",
        "v",
        (
            HeatMap("few", "F", (("a", (0.25, None)),), "share", "part", (HOSTILE, "b")),
            HeatMap("many", "M", (("a", (1.0,) * 90),) * 90, "ns", "time", tuple(f"{HOSTILE}{i}" for i in range(90))),
        ),
    ),
    "stacks": Result(
        "stacks",
        "Stacks",
        "v",
        (Stacks("s", HOSTILE, (((HOSTILE, "main a.py:1"), 3, 4_000),), {"main a.py:1": "program"}),),
    ),
    "no stacks": Result("stacks", "Stacks", "v", more=(Stacks("s", "S", (), {}),)),
    "no heat": Result("heat", "Heat", "v", (HeatMap("h", "H", (), "ns", "nothing"),)),
    "portions": Result(
        "portions",
        "Portions",
        "v",
        (
            Portions(
                "p",
                HOSTILE,
                "owner",
                (
                    Portion(HOSTILE, 10**12, 9, tuple(Portion(HOSTILE, 10**11, 1) for _ in range(10))),
                    Portion("b", 1, 1),
                ),
                10**12 + 1,
            ),
        ),
    ),
    "no portions": Result("portions", "Portions", "v", (Portions("p", "P", "owner", (), 0),)),
    "timeline": Result(
        "timeline",
        "Timeline",
        "v",
        (
            Timeline(
                "t",
                HOSTILE,
                0,
                100,
                tuple(range(0, 100, 2)),
                (10**12,) * 50,
                ((HOSTILE, (10**12,) * 50), ("none", (0,) * 50)),
                ((10**20, 3), (9, 50)),
                HOSTILE,
                99,
            ),
        ),
    ),
    "no timeline": Result("timeline", "Timeline", "v", (Timeline("t", "T", 0, 0, (), (), ()),)),
    "section": Result(
        "section",
        "Section",
        "v",
        (Section("s", "S", (Pair("method", HOSTILE),), Table("t", "", (Field("a"),), ((1,),))),),
    ),
    "hostile": Result("hostile", HOSTILE, HOSTILE, notes=(HOSTILE,)),
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def render(name: str, result: Result, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    renderer(name).write(result, stream)
    return stream.getvalue()


@pytest.mark.parametrize("which", [candidate.name for candidate in RENDERERS])
@pytest.mark.parametrize("name", RESULTS)
def test_every_renderer_renders_every_result(which: str, name: str) -> None:
    text = render(which, RESULTS[name])
    assert text.endswith("\n")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text), "control codes"
    assert RESULTS[name].verdict.split("[")[0] in text


@pytest.mark.parametrize("name", RESULTS)
def test_text_stays_in_80_columns(name: str) -> None:
    assert max(map(len, render("terminal", RESULTS[name]).splitlines())) <= 80


@pytest.mark.parametrize("name", RESULTS)
def test_json_holds_what_the_result_says(name: str) -> None:
    assert json.loads(render("json", RESULTS[name])) == json.loads(json.dumps(RESULTS[name].to_json()))


def test_values_are_shown_with_their_units() -> None:
    text = render("terminal", RESULTS["table"])
    assert "2.00 us" in text
    assert "... and 7 more" in text
    assert "kernel[bold red]<4>\\x1b[31m\\nnext :smile:" in text.replace("\n", "")
    assert "idle.data" in render("terminal", RESULTS["lines"])
    told = render("terminal", RESULTS["findings"])
    assert f"{FINDING.saves}, from 100 us to 90.0 us" in told
    assert "2.4 rank-hours a day ($6)" in " ".join(told.split())
    assert "about 93%, by outcomes of other jobs" in told


def test_a_saving_that_may_be_zero_has_no_hours() -> None:
    (found,) = (block for block in RESULTS["findings"].blocks if isinstance(block, Findings))
    unsure = Estimate.measured(0.1, 0.2, "timed steps")
    doubted = replace(found.items[0], saving=unsure, level="suspected", doubt="It may be chance.")
    told = render("terminal", replace(RESULTS["findings"], blocks=(replace(found, items=(doubted,)),)))
    assert "perhaps nothing" in " ".join(told.split())
    assert "rank-hours" not in told


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    result = Result("x", "Title", "v", notes=("careful",))
    assert "\x1b[33m" in render("terminal", result, Terminal())
    assert "\x1b" not in render("terminal", result)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[33m" not in render("terminal", result, Terminal())


def test_the_next_command_is_never_folded_and_never_in_json() -> None:
    result = Result("x", "X", "v", next_command="lostflops info " + "deep/" * 40)
    assert f"Next: {result.next_command}\n" in render("terminal", result)
    assert "deep/" not in render("json", result)


def test_a_second_command_stands_beside_the_next() -> None:
    result = Result("x", "X", "v", next_command="lostflops score p-1", other_command="lostflops open <run>")
    assert render("terminal", result).endswith("Next: lostflops score p-1\nOr: lostflops open <run>\n")
    assert render("markdown", result).endswith("Next: `lostflops score p-1`, or `lostflops open <run>`\n")
    assert "<code>lostflops score p-1</code>, or <code>lostflops open &lt;run&gt;</code>" in result._repr_html_()
    assert "lostflops open" not in render("json", result)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1_234_567, "count", "1,234,567"),
        (1_234_567, "", "1234567"),
        (2048, "bytes", "2.05 kB"),
        (10**12, "flop", "1.00 TFLOP"),
        (10**12, "flops", "1.00 TFLOP/s"),
        (1_700_000_000_000_000_000, "time", "2023-11-14 22:13:20.000"),
        (1, "share", "100.0%"),
        (True, "", "yes"),
        (0.1, "", "0.1"),
        ("a\tb", "", "a\\tb"),
    ],
)
def test_format_value(value, unit, shown: str) -> None:
    assert format_value(value, unit) == shown


def heat(*rows: tuple[str, tuple[float | None, ...]]) -> Result:
    return Result("heat", "Heat", "v", (HeatMap("h", "H", rows, "ns", "lateness"),))


def test_a_heat_map_has_a_shade_for_each_value() -> None:
    result = heat(("0-3", (0.0, 1_000.0, None, 4_000.0)), ("4-7", (2_000.0, 3_000.0, -5.0, 0.0)))
    lines = render("terminal", result).splitlines()
    assert lines[4:6] == ["  0-3  ·░?█", "  4-7  ▒▓··"]
    assert lines[6].strip() == "lateness; █ is 4.00 us, ? is no value"
    assert json.loads(render("json", result))["h"] == [
        {"row": "0-3", "values": [0.0, 1_000.0, None, 4_000.0]},
        {"row": "4-7", "values": [2_000.0, 3_000.0, -5.0, 0.0]},
    ]


def test_a_heat_map_without_blocks_where_they_cannot_be_written() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    renderer("terminal").write(heat(("0-4", (0.0, 1.0, 2.0, 3.0, 4.0))), stream)
    stream.seek(0)
    assert "  0-4  .-+*#" in stream.read().splitlines()


def test_a_heat_map_of_nothing_is_pale() -> None:
    lines = render("terminal", heat(("0-1", (0.0, 0.0)), ("2-3", (None, None)))).splitlines()
    assert lines[4:6] == ["  0-1  ··", "  2-3  ??"]


def test_a_section_is_one_object() -> None:
    table = Table("ranks", "", (Field("rank"), Field("offset_ns", "ns", "offset")), ((0, 0), (1, 1_500)))
    result = Result("r", "R", "v", (Section("clock", "Clocks", (Pair("method", "same host"),), table),))
    assert json.loads(render("json", result))["clock"] == {
        "method": "same host",
        "ranks": [{"rank": 0, "offset_ns": 0}, {"rank": 1, "offset_ns": 1_500}],
    }
    text = render("terminal", result)
    assert "method  same host" in text
    assert re.search(r"1 +1\.50 us", text)


@pytest.mark.parametrize(("most", "left_out", "more"), [(None, 0, 0), (10, 0, 0), (3, 0, 2), (3, 4, 6), (None, 4, 4)])
def test_people_see_the_first_rows_and_programs_all(most: int | None, left_out: int, more: int) -> None:
    rows = tuple((f"row {number}",) for number in range(5))
    result = Result("t", "T", "v", (Table("t", "", (Field("name"),), rows, left_out, most),))
    text = render("terminal", result)
    assert text.count("row ") == min(most or 5, 5)
    assert (f"... and {more} more" in text) == (more > 0)
    assert len(json.loads(render("json", result))["t"]) == 5


def test_a_heat_map_names_its_columns_and_says_what_it_leaves_out():
    shown = render("terminal", RESULTS["heat map with columns"])
    assert ", b" in shown
    assert "is 25.0%" in shown
    assert "... and 26 more" in shown


@pytest.mark.parametrize(("columns", "width"), [("120", 120), ("60", 60), ("", 80), ("wide", 80)])
def test_text_in_a_pipe_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    longest = max(map(len, render("terminal", Result("wide", "Wide", "word " * 100)).splitlines()))
    assert width - 5 <= longest <= width


def test_json_does_not_wait_for_the_terminal():
    script = (
        "import io, sys\nfrom lostflops.core.results import Result\nfrom lostflops.show.report import renderer\n"
        "renderer('json').write(Result('x', 'X', 'Y.'), io.StringIO())\nprint('rich' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )
