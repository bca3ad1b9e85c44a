"""What a page saves, as a test reads it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lostflops.core.results import Table

if TYPE_CHECKING:
    from playwright.sync_api import Locator


def save(block: Locator, kind: str) -> Path:
    """Save a block by its menu, and return the file under the name that the page gave it."""
    page = block.page
    block.locator("summary", has_text="Save").first.click()
    with page.expect_download() as started:
        block.locator(".menu-items").get_by_role("button", name=kind).click()
    path = Path(started.value.path())
    return path.rename(path.with_name(started.value.suggested_filename))


def read_csv(file: Path) -> list[list[str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream, strict=True))


def holds_rows(file: Path, table: Table, told: list[dict[str, Any]]) -> int:
    """Compare a saved table with the JSON of its verb, cell by cell, and return how many cells it has."""
    heads, *rows = read_csv(file)
    assert len(rows) == len(told)
    for field, head, *cells in zip(table.fields, heads, *rows, strict=True):
        key = f"{field.within}.{field.name}" if field.within else field.name
        assert head.startswith(key), head
        for cell, row in zip(cells, told, strict=True):
            value = (row[field.within] if field.within else row)[field.name]
            if field.unit != "time":  # which pages have as text
                assert _value(cell, value) == value, (head, cell)
    return len(heads) * len(rows)


def _value(cell: str, like: Any) -> Any:
    match like:
        case None:
            return cell or None
        case bool():
            return {"true": True, "false": False}.get(cell)
        case int() | float():
            return type(like)(cell)
        case _:
            return cell.removeprefix("'") if cell[1:2] in ("=", "+", "-", "@") else cell
