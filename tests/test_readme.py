"""The headline figures of the README stand on the pages that they link to, and what makes them is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Measured\n")[1].split("\n## ")[0]
ROWS = [[cell.strip() for cell in row.strip("|").split("|")] for row in TABLE.splitlines() if row.startswith("| ")][1:]


def linked(cell: str) -> Path:
    found = re.fullmatch(r"\[[^]]+\]\(([^)]+)\)", cell)
    assert found, f"{cell} is no link"
    return ROOT / found[1]


def test_there_are_figures() -> None:
    assert len(ROWS) >= 8


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_figure_stands_on_its_page(row: list[str]) -> None:
    _, figure, page, maker = row
    text = linked(page).read_text(encoding="utf-8")
    figures = [quoted for quoted in re.findall(r"`([^`]+)`", figure) if re.search(r"\d", quoted)]
    assert figures or "27 of 27" in figure
    assert [one for one in figures if one not in text] == []
    made = linked(maker)
    assert made.exists()
    name = ".".join(made.relative_to(ROOT).parts).removesuffix(".py")
    assert str(made.relative_to(ROOT)) in text or f"python -m {name}" in text


def test_other_tools_have_what_the_page_says() -> None:
    text = (ROOT / "docs/explanation/compared.md").read_text(encoding="utf-8")
    for tool, right in (("lostflops", 27), ("traceml-ai", 6), ("pytscope", 4)):
        assert f"| `{tool}` | 27 | {right} |" in text
