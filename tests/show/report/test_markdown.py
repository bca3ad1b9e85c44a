"""Markdown for pull requests: columns of numbers to the right, pictures named, text as text."""

import io

import pytest

from lostflops.core.pictures import Strips
from lostflops.core.results import Bar, Field, HeatMap, Line, Lines, Plot, Result, Series, Table, Waterfall
from lostflops.show.report import renderer


def markdown(*blocks) -> str:
    stream = io.StringIO()
    renderer("markdown").write(Result("r", "R", "v", blocks), stream)
    return stream.getvalue()


def test_columns_of_numbers_stand_to_the_right() -> None:
    fields = (Field("name"), Field("dur", "ns"), Field("known"))
    text = markdown(Table("t", "T", fields, (("a", 1_500_000, True), ("b", None, False))))
    assert text.splitlines()[6:] == [
        "| name | dur | known |",
        "|---|---:|---|",
        "| a | 1.50 ms | yes |",
        "| b | - | no |",
    ]


def test_the_ledger_is_told_by_step_as_on_a_screen() -> None:
    lines = Lines("l", "L", (Line("compute", 6_000, 0.75), Line("copy", 2_000, 0.25)), 8_000, 4, "step")
    assert markdown(lines).splitlines()[6:] == [
        "| line | time per step | share |",
        "|---|---:|---:|",
        "| compute | 1.50 us | 75.0% |",
        "| copy | 500 ns | 25.0% |",
        "| total | 2.00 us | 100.0% |",
    ]


def test_a_waterfall_says_what_it_rests_on() -> None:
    text = markdown(Waterfall("w", "W", None, "no peak", "fma is two", (Bar("copy", 60.0), Bar("compute", 40.0))))
    assert "| copy | 60.0% |" in text
    assert "\nno peak\n" in text
    assert "\nfma is two\n" in text


def test_pictures_are_named() -> None:
    text = markdown(
        HeatMap("h", "Who is late", (("a", (1.0,)),), "ns", "legend"),
        Plot("p", "", Field("x"), Field("y"), (Series("s", "line", ()),)),
        Strips("s", "What <each> does", 0, 1, 1, ("k",), (("a", b"\x01"),)),
    )
    named = [line for line in text.splitlines() if "is a chart" in line]
    assert [line.split("*")[1] for line in named] == ["Who is late", "p", r"What \<each\> does"]
    assert all("`lostflops open RUN`" in line for line in named)


@pytest.mark.parametrize("name", ["markdown", "terminal"])
def test_commands_name_the_run(name: str) -> None:
    stream = io.StringIO()
    strips = Strips("s", "What each does", 0, 1, 1, ("k",), (("a", b"\x01"),))
    renderer(name).write(Result("r", "R", "v", (strips,), run="'my run'"), stream)
    assert "lostflops open 'my run'" in stream.getvalue()


def test_text_is_not_markup() -> None:
    text = markdown(Table("t", "", (Field("name"),), (("~~a~~ $b$ &lt; <b> [c](d) *e* `f` |g|",),)))
    assert r"| \~\~a\~\~ \$b\$ \&lt; \<b\> \[c\](d) \*e\* \`f\` \|g\| |" in text
