"""The plain data that the web UI is given."""

import json
import zlib
from base64 import b64decode

from hypothesis import given
from hypothesis import strategies as st

from lostflops.core.pictures import Counter, Events, Meetings, Strips
from lostflops.core.results import Field, Page, Pair, Pairs, Plot, Result, Section, Series, Table
from lostflops.show.report.view import View, pack_data

MOMENT = 1_700_000_000_123_999_999
SAID = "2023-11-14 22:13:20.123"


def table(*rows: tuple, unit: str = "", more: tuple = ()) -> Table:
    return Table("t", "T", (Field("value", unit),), rows, more=more)


def test_times_are_text_wherever_they_stand() -> None:
    view = View()
    rows = table((MOMENT,), (None,), unit="time")
    pairs = (Pair("at", MOMENT, "time"), Pair("all", (MOMENT, None), "time"))
    assert view.block(rows)["rows"] == [[SAID], [None]]
    assert [pair["value"] for pair in view.block(Pairs("p", "", pairs))["items"]] == [SAID, [SAID, None]]
    section = view.block(Section("s", "", pairs[:1], rows))
    assert (section["items"][0]["value"], section["table"]["rows"]) == (SAID, [[SAID], [None]])


def test_integers_that_javascript_cannot_hold_are_text() -> None:
    large = 2**53
    assert View().block(table((large,), (large + 1,), (-large - 1,), (True,), unit="bytes"))["rows"] == [
        [large],
        [str(large + 1)],
        [str(-large - 1)],
        [True],
    ]


def test_numbers_that_json_lacks_are_text_in_tables_and_nothing_in_pictures() -> None:
    view = View()
    plot = Plot("p", "", Field("x"), Field("y"), (Series("s", "marks", ((1.0, float("nan")),)),))
    held = Result("r", "R", "v", (table((float("inf"),), (float("nan"),)), plot))
    data = view.page(Page("p", (held,), {}))
    json.dumps(data, allow_nan=False)
    rows, drawn = data["results"][0]["blocks"]
    assert rows["rows"] == [["inf"], ["nan"]]
    assert drawn["series"][0]["points"] == [[1.0, None]]


def test_what_only_programs_read_is_left_out() -> None:
    assert "secret" not in json.dumps(View().block(table((1,), more=({"secret": 1},))))


def test_a_page_says_which_verdict_stays_in_sight_and_what_is_missing() -> None:
    data = View().page(Page("p", (), {"MFU": "a"}, (("memory", "no events"),), "quality"))
    assert (data["standing"], data["missing"], data["glossary"]) == ("quality", [["memory", "no events"]], {"MFU": "a"})


def test_blobs_follow_the_json_and_come_back_as_they_were() -> None:
    view = View()
    strips = Strips("s", "S", 0, 100, 2, ("idle", "busy"), (("0", bytes([0, 1])), ("1", bytes([1, 1]))))
    data = view.page(Page("p", (Result("r", "R", "v", (strips,)),), {}))
    texts = pack_data(data, view.blobs)
    json_text, blob = (zlib.decompress(b64decode(text)) for text in texts)
    assert json.loads(json_text)["results"][0]["blocks"][0]["codes"] == {"blob": 0, "type": "u1"}
    assert blob == bytes([0, 1, 1, 1])


@given(st.lists(st.lists(st.tuples(st.integers(0, 2**50), st.integers(-1, 2**50)), max_size=9), max_size=4))
def test_counters_come_back_point_by_point(points) -> None:
    counters = tuple(
        Counter(row, f"counter {row}", "bytes", [at for at, _ in own], [value for _, value in own], 1000, "some")
        for row, own in enumerate(points)
    )
    none: list[int] = []
    meetings = Meetings(none, none, none, none, none, none, none, ())
    events = Events((), (), (), (), none, none, none, none, none, none, none, meetings, counters=counters)
    view = View()
    data = json.loads(json.dumps(view.events(events)))["counters"]
    at, value = (_read_differences(view.blobs[data[name]["blob"]]) for name in ("at", "value"))
    for row, (counter, own) in enumerate(zip(data["each"], points, strict=True)):
        assert counter == [row, f"counter {row}", "bytes", 1000, "some", len(own)]
        assert [(at.pop(0), value.pop(0)) for _ in own] == own
    assert (at, value) == ([], [])


def _read_differences(packed: bytes) -> list[int]:
    """As the page reads them."""
    found, number, bits, last = [], 0, 0, 0
    for byte in packed:
        number |= (byte & 127) << bits
        bits += 7
        if byte < 128:
            last += -(number + 1) // 2 if number % 2 else number // 2
            found.append(last)
            number = bits = 0
    return found
