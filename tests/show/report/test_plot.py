import io
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lostflops.core.results import Band, Field, Mark, Plot, Result, Series
from lostflops.show.report import renderer
from lostflops.show.report.axes import Axis, axes
from lostflops.show.report.colours import SERIES
from lostflops.show.report.plot import ROWS, draw_text_plot
from lostflops.show.report.svg_plot import LEFT, LETTER, WIDTH


def plot(*series: Series, x: Field | None = None, y: Field | None = None, **scales: bool) -> Plot:
    return Plot("p", "P", x or Field("size", "bytes"), y or Field("time", "ns"), series, **scales)


def text(block: Plot, width: int = 80, *, plain: bool = False) -> list[str]:
    return [line.plain for line in draw_text_plot(block, width, plain=plain)]


def svg(*blocks: Plot) -> ET.Element:
    stream = io.StringIO()
    renderer("svg").write(Result("r", "R", "v", blocks), stream)
    return ET.fromstring(stream.getvalue())


def test_marks_lie_where_their_values_do() -> None:
    block = plot(Series("up", "marks", ((1_000, 1_000), (1_000_000, 1_000_000), (10**9, 10**9))))
    rows = [row.rpartition("┤")[2] if "┤" in row else row.rpartition("│")[2] for row in text(block)[1 : ROWS + 1]]
    found = [(row, line.index("o")) for row, line in enumerate(rows) if "o" in line]
    assert [row for row, _ in found] == [0, 7, 15]
    (_, right), (_, middle), (_, left) = found
    assert abs((right - middle) - (middle - left)) <= 1, "a decade is as wide as another"


def test_ticks_are_round_and_have_units() -> None:
    lines = text(plot(Series("s", "line", ((1_000, 1_000), (10**9, 10**8)))))
    assert [line.split()[0] + line.split()[1] for line in lines if "┤" in line] == [
        "100ms",
        "10ms",
        "1ms",
        "100us",
        "10us",
        "1us",
    ]
    assert re.findall(r"\d+ \w+", lines[ROWS + 2]) == ["1 kB", "10 kB", "100 kB", "1 MB", "10 MB", "100 MB", "1 GB"]


def test_numbers_of_ranks_are_written_themselves() -> None:
    points = ((8, 0.9), (64, 0.8), (512, 0.7), (4096, 0.6))
    lines = text(
        plot(Series("s", "line", points), x=Field("ranks", "count"), y=Field("efficiency", "share"), log_y=False)
    )
    assert lines[ROWS + 2].split() == ["8", "64", "512", "4096"]


def test_ratios_have_round_values_too() -> None:
    roof = ((204.8, 686e12), (295.2, 989e12), (819.2, 584e12), (1117.1, 584e12), (4681.1, 989e12))
    scales = axes(plot(Series("s", "line", roof), x=Field("flop_per_byte", "count"), y=Field("rate", "flop")))
    assert scales is not None
    across, up = ([label for _, label in axis.ticks(7)] for axis in scales)
    assert across == ["200", "500", "1000", "2000", "5000"]
    assert up == ["600 TFLOP", "700 TFLOP", "800 TFLOP", "900 TFLOP", "1 PFLOP"]


def test_a_line_through_marks_shares_their_look() -> None:
    points = ((1, 1), (10, 10))
    block = plot(
        Series("ring: seen", "marks", points), Series("ring: fitted", "line", points), Series("tree", "line", points)
    )
    assert "  o ring: seen   . ring: fitted (line)   x tree (line)" in text(block)
    strokes = {
        element[0].text: element[1].get("stroke")
        for element in svg(block).iter("{http://www.w3.org/2000/svg}g")
        if element[1].get("stroke-width") == "1.8"
    }
    assert strokes == {"ring: fitted": SERIES[0], "tree": SERIES[1]}


def test_ascii_where_nothing_else_can_be_written() -> None:
    lines = text(plot(Series("s", "line", ((1, 1), (1000, 1000)))), plain=True)
    assert all(line.isascii() for line in lines)
    assert sum(line.count(".") for line in lines[1 : ROWS + 1]) > 20


def test_points_without_a_place_are_counted() -> None:
    block = plot(Series("s", "marks", ((0, 1), (1, 0), (2, -1), (3, 3), (4, float("nan")))))
    assert "  not drawn: 4 points that these axes cannot show" in text(block)
    assert "Not drawn: 4 points that these axes cannot show." in [element.text for element in svg(block).iter()]
    linear = plot(Series("s", "marks", ((0, 1), (1, 0), (2, -1))), log_x=False, log_y=False)
    assert not any("not drawn" in line for line in text(linear))


def test_a_line_is_broken_where_a_point_has_no_place() -> None:
    block = plot(Series("s", "line", ((1, 1), (2, 2), (3, 0), (4, 4), (5, 5))))
    (way,) = [element.get("d") for element in svg(block).iter() if element.get("stroke-width") == "1.8"][:1]
    assert way is not None
    assert re.sub(r"[^ML]", "", way) == "MLML"


def test_plots_stand_one_below_the_other() -> None:
    one = plot(Series("s", "line", ((1, 1), (2, 2))))
    heights = [
        int(svg(*[Plot(f"p{i}", "P", one.x, one.y, one.series) for i in range(count)]).get("height", ""))
        for count in (0, 1, 2)
    ]
    assert heights[2] - heights[1] == heights[1] - heights[0] > 300


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=20).map(tuple)
UNITS = st.sampled_from(["", "count", "ns", "bytes", "flop", "flops", "share", "time", "rate", "gbs"])


@given(
    st.lists(st.builds(Series, st.text(), st.sampled_from(["marks", "line"]), POINTS), max_size=4),
    UNITS,
    st.booleans(),
    st.booleans(),
)
def test_anything_can_be_drawn_in_its_place(series, unit, log_x: bool, log_y: bool) -> None:
    block = plot(*series, x=Field("x", unit), y=Field("y", unit), log_x=log_x, log_y=log_y)
    assert all(cell_len(line) <= 80 for line in text(block))
    svg(block)
    scales = axes(block)
    for axis in scales or ():
        places = [axis.place(value) for value, _ in axis.ticks(6)]
        assert places == sorted(places)
        assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)


@pytest.mark.parametrize(
    ("unit", "low", "high", "labels"),
    [
        ("ns", 25.84e6, 25.95e6, ["25.85 ms", "25.9 ms", "25.95 ms"]),
        ("bytes", 99.9e6, 100.2e6, ["99.9 MB", "100 MB", "100.1 MB", "100.2 MB"]),
        ("ns", 0, 7200e9, ["0", "50 min", "100 min"]),
        ("ns", 99_000e9, 99_900e9, ["99000 s", "99200 s", "99400 s", "99600 s", "99800 s"]),
        ("gbs", 1230, 1290, ["1240", "1260", "1280"]),
    ],
)
def test_labels_show_every_digit_that_tells_them_apart(unit, low: float, high: float, labels: list[str]) -> None:
    assert [label for _, label in Axis(unit=unit, title="", log=False, low=low, high=high).ticks(6)] == labels


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_plot_is_as_wide_as_it_may_be(width: int) -> None:
    lines = text(plot(Series("s", "line", ((1, 1), (10, 10)))), width)
    assert max(map(len, lines)) <= min(width, 100)


def test_bands_and_marks_are_drawn_and_named() -> None:
    block = Plot(
        "p",
        "P",
        Field("step"),
        Field("time", "ns"),
        (Series("steps", "marks", ((0, 5), (10, 5), (20, 6))),),
        log_x=False,
        log_y=False,
        bands=(Band("deep window", 2.5, 5.5),),
        marks=(Mark("attempt 1", 9.5),),
    )
    assert text(block)[-1].strip() == "attempt 1 from 10"
    drawn = svg(block)
    assert [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")].count("attempt 1") == 1
    across, _ = axes(block)
    (shade,) = (one for one in drawn.iter("{http://www.w3.org/2000/svg}rect") if one.find("{*}title") is not None)
    assert float(shade.get("width")) == pytest.approx((across.place(5.5) - across.place(2.5)) * WIDTH, abs=0.1)


def texts(plot: Plot) -> list[tuple[str, float]]:
    """Return the texts of a drawing with their left ends."""
    elements = svg(plot).iter("{http://www.w3.org/2000/svg}text")
    return [(element.text or "", float(element.get("x", ""))) for element in elements]


def test_single_marks_have_their_names_beside_them_without_overlap() -> None:
    """A name that has no space is in the legend alone."""
    points = {"alone": (1.0, 1.0), "crowded": (5.0, 5.0), "at the edge": (9.0, 8.0)}
    marks = [Series(name, "marks", (point,)) for name, point in points.items()]
    line = Series("line", "line", ((1.0, 1.0), (9.0, 2.0)))
    crowd = Series("crowd", "marks", tuple((5 + x / 10, 5 + y / 10) for x in range(-9, 9) for y in range(-9, 9)))
    drawn = texts(Plot("p", "P", Field("x"), Field("y"), (*marks, line, crowd), log_x=False, log_y=False))
    beside = {text: x for text, x in drawn if text in points and x < LEFT + WIDTH}
    assert beside.keys() == {"alone", "at the edge"}
    assert beside["at the edge"] + LETTER * len("at the edge") < LEFT + WIDTH
    assert [text for text, x in drawn if x > LEFT + WIDTH] == [*points, "line", "crowd"]


def test_curves_have_their_names_in_the_legend_alone() -> None:
    several = tuple(Series(name, "marks", ((1.0, 1.0), (2.0, 2.0))) for name in ("one", "two"))
    assert [text for text, _ in texts(Plot("p", "P", Field("x"), Field("y"), several)) if text in {"one", "two"}] == [
        "one",
        "two",
    ]
