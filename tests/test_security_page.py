"""SECURITY.md names the tests that show each defence: they are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"\[`(\w+)`\]\(([\w/]+\.py)\)", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))


def test_every_table_of_threats_names_tests() -> None:
    tables = re.findall(r"\| threat \|.*?\n\n", (ROOT / "SECURITY.md").read_text(encoding="utf-8"), re.DOTALL)
    rows = [row for table in tables for row in table.strip().splitlines()[2:]]
    assert len(rows) > 20
    assert [row for row in rows if "](tests/" not in row] == []


@pytest.mark.parametrize(("name", "file"), NAMED)
def test_a_defence_is_tested(name: str, file: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
