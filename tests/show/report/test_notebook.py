"""What a notebook shows of any result: nothing that runs, text as text, the numbers that JSON has."""

from html.parser import HTMLParser

import pytest
from tests.show.report.test_renderers import FINDING, RESULTS

from lostflops.core.pictures import Strips
from lostflops.core.results import Bar, Field, Findings, HeatMap, Line, Lines, Pair, Pairs, Result, Table, Waterfall
from lostflops.show.report.values import format_value
from made_hostile import PAYLOADS

TAGS = {
    "div", "h3", "h4", "p", "em", "strong", "code", "table", "thead", "tbody", "tr", "th", "td", "svg", "rect", "text",
    "title", "path", "line", "g", "polyline",
}  # fmt: skip
STYLES = {"text-align:right", "text-align:left"}


class Read(HTMLParser):
    """Tags must be known, closed in order, and without anything that loads or runs."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attributes:
            assert not name.startswith("on"), name
            assert name not in ("href", "src", "srcset", "srcdoc", "action", "xlink:href"), name
            assert "url(" not in (value or "").lower()
            assert name != "style" or value in STYLES, value
        self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if "td" in self.open:
            self.cells[-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


def read(html: str) -> Read:
    found = Read()
    found.feed(html)
    found.close()
    assert not found.open
    return found


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_shown(name: str) -> None:
    found = read(RESULTS[name]._repr_html_())
    assert RESULTS[name].verdict.split("[")[0] in "".join(found.text)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_names_stay_text(payload: str) -> None:
    result = Result(
        payload,
        payload,
        payload,
        (
            Table("t", payload, (Field(payload, label=payload),), ((payload,),)),
            Pairs("p", payload, (Pair(payload, payload), Pair("many", (payload, payload)))),
            Lines("l", payload, (Line(payload, 5, 1.0),), 5, 2, payload),
            HeatMap("h", payload, ((payload, (1.0,)),), "ns", payload, (payload,), payload, payload),
            Waterfall("w", payload, None, payload, payload, (Bar(payload, 100.0),)),
            Strips("s", payload, 0, 1, 1, (payload,), ((payload, b"\x01"),)),
        ),
        (payload,),
        payload,
    )
    found = read(result._repr_html_())
    shown = format_value(payload, "")
    assert found.cells[0] == shown
    assert "".join(found.text).count(shown) >= 15


def test_a_heat_map_says_what_its_rows_and_columns_are() -> None:
    late = HeatMap("h", "", (("0", (1.0,)),), "ns", "lateness", ("10",), "rank", "step <of> training")
    assert "<th>rank</th><th>step &lt;of&gt; training</th>" in Result("r", "R", "v", (late,))._repr_html_()


def test_numbers_are_those_of_json() -> None:
    table = Table("t", "", (Field("name"), Field("dur", "ns"), Field("size", "bytes")), (("a", 1_500_000, 2_000),))
    lines = Lines("l", "", (Line("compute", 30, 0.75), Line("copy", 10, 0.25)), 40, 2, "step")
    result = Result("r", "R", "v", (table, lines))
    cells = read(result._repr_html_()).cells
    said = result.to_json()
    (row,) = said["t"]
    assert cells[:3] == [format_value(row[key], unit) for key, unit in (("name", ""), ("dur", "ns"), ("size", "bytes"))]
    rows = [cells[at : at + 3] for at in (3, 7)]
    assert rows == [
        [line["line"], format_value(line["ns"] // 2, "ns"), format_value(line["share"], "share")]
        for line in said["l"]["lines"]
    ]


def test_findings_show_themselves() -> None:
    text = "".join(read(Findings("f", "Causes", (FINDING, FINDING), 1)._repr_html_()).text)
    assert "Causes" in text
    assert FINDING.fix in text
    assert "1 more finding in the diagnosis." in text


def test_rows_that_are_left_out_are_counted() -> None:
    rows = tuple((number,) for number in range(100))
    found = read(Result("r", "R", "v", (Table("t", "", (Field("n"),), rows, 7),))._repr_html_())
    assert len(found.cells) == 60
    assert "47 more rows." in "".join(found.text)


def test_a_waterfall_hangs_from_the_top() -> None:
    html = Result(
        "r", "R", "v", (Waterfall("w", "", 40.0, "", "", (Bar("lost", 60.0), Bar("MFU", 40.0))),)
    )._repr_html_()
    assert '<rect x="72.0" width="108.0"' in html
    assert '<rect x="0.0" width="72.0"' in html
