"""Values read on a page as they do in a terminal, to the last digit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lostflops.core.results import Field, Page, Pair, Pairs, Result, Table, Unit, Value
from lostflops.show.report.html import write_page
from lostflops.show.report.values import format_value, format_values

if TYPE_CHECKING:
    from tests.ui.conftest import OpenPage

chance = random.Random(0)
EDGES = (0, 1, 999, 1_000, 1_005, 1_015, 9_995, 9_994, 10_050, 99_950, 999_499, 999_500, 999_999, 10**6, 59_999_999_999)
LARGE = (2**53, 2**53 + 1, 10**18, 10**24, 999_500_000_000_000_000_000_000, 10**27)
WHOLE = [*EDGES, *LARGE, *(chance.randrange(10 ** chance.randrange(1, 20)) for _ in range(120))]
# Multiples of powers of two are ties that binary numbers hold exactly.
TIES = [number / 2**power for power in range(1, 14) for number in (1, 3, 5, 37, 125, 12_345)]
REAL = [*TIES, 0.0, -0.0, 1e-300, 1e-5, 0.0001, 0.00009999999999, 0.9995, 0.99951, 0.00049, 0.0005, 999.5, 1e15, 1e22]
REAL += [chance.uniform(0, 10 ** chance.randrange(-8, 9)) for _ in range(150)]
VALUES: dict[Unit, list[Value]] = {
    **{unit: [value for one in WHOLE for value in (one, -one)] for unit in ("ns", "bytes", "flop", "flops", "count")},
    **{unit: [value for one in REAL for value in (one, -one)] for unit in ("share", "rate", "gbs")},
    # JSON does not tell 5e15 from an integer.
    "": [
        *(value for value in REAL if not value.is_integer() or abs(value) < 1e10),
        *(value for value in REAL if value > 2**53),
        *("a\x1b[31m\n\t\u202eb\U000e0001", "1234567890123456789", "", True, False, None, 12, -7),
    ],
    "time": [0, 1_700_000_000_123_999_999, None],
}
LISTS: list[tuple[Value, ...]] = [
    (), (0, 1, 2, 3, 8), ("a", "b"), tuple(range(1_234)), tuple(range(0, 2_000, 2)), (5,), (None, 1, 2), (1.5, 2.5),
]  # fmt: skip


@pytest.fixture
def shown(tmp_path: Path, open_page: OpenPage) -> dict[str, list[str]]:
    """The texts of each table and of the figures, by name."""
    tables = [
        Table(f"unit-{unit}", unit, (Field("value", unit),), tuple((value,) for value in values))
        for unit, values in VALUES.items()
    ]
    pairs = Pairs("lists", "Lists", tuple(Pair(f"p{place}", values) for place, values in enumerate(LISTS)))
    file = tmp_path / "page.html"
    with file.open("w", encoding="utf-8") as stream:
        write_page(Page("units", (Result("units", "Units", "v", (*tables, pairs)),), {}), stream)
    page = open_page(file)
    page.evaluate("document.querySelectorAll('.tools.below button').forEach((button) => button.click())")
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("section.block")].map((block) =>
             [block.dataset.block, [...block.querySelectorAll("td, dd")].map((cell) => cell.textContent)]))"""
    )


def test_values_and_lists_read_as_in_a_terminal(shown: dict[str, list[str]]) -> None:
    for unit, values in VALUES.items():
        said = [format_value(value, unit) for value in values]
        wrong = [triple for triple in zip(values, said, shown[f"unit-{unit}"], strict=True) if triple[1] != triple[2]]
        assert not wrong, f"{unit}: {wrong[:5]}"
    assert shown["lists"] == [format_values(values, "") for values in LISTS]
