"""A timeline as text: what is said of it fits, and marks stand where they belong."""

from lostflops.core.results import Timeline
from lostflops.show.report.sparkline import sparklines


def made(**more: object) -> Timeline:
    rows = (("optimizer_state", (100,) * 50), ("activations", (0,) * 25 + (400,) * 25), ("batches", (1,) * 50))
    total = tuple(map(sum, zip(*(values for _, values in rows), strict=True)))
    return Timeline("t", "T", 0, 50 * 999_000_000, tuple(range(50)), total, rows, **more)


def test_small_rows_are_counted_and_nothing_is_cut_off() -> None:
    lines = list(sparklines(made()))
    assert [line.split()[0] for line in lines[:-1]] == ["total", "optimizer_state", "activations"]
    assert lines[-1].endswith("999 ms; each row has its own scale; 1 row below 1% hidden")
    assert max(map(len, lines)) <= 80


def test_rows_have_their_own_scale_and_largest_value() -> None:
    _, state, saved, *_ = sparklines(made())
    assert "█" * 50 in state
    assert " " * 25 + "█" * 25 in saved
    assert saved.endswith("  400 B")


def test_marks_and_the_top_stand_in_their_columns() -> None:
    start = 25 * 999_000_000
    lines = list(sparklines(made(marks=((7, 0), (8, start), (9, start + 1)), top=start)))
    place = lines[2].index("█")
    assert lines[0].index("|7") == place
    assert lines[0].index("|8") == place + 25
    assert "9" not in lines[0]
    assert lines[-2].index("^") == place + 25
