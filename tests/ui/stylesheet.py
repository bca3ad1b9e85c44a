"""The colours of the page, as its style sheets and scripts declare them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

UI: Final = Path(__file__).parents[2] / "ui" / "src"
_VARIABLE: Final = re.compile(r"(--[\w-]+): light-dark\((#\w{6}), (#\w{6})\)")


def read_variables(theme: str) -> dict[str, str]:
    """Return the colour of each variable as `#rrggbb`; the theme is `light` or `dark`."""
    style = "".join((UI / name).read_text("utf-8") for name in ("style.css", "chart.css"))
    return {name: dark if theme == "dark" else light for name, light, dark in _VARIABLE.findall(style)}


def read_table(file: str, table: str) -> dict[str, str]:
    """Return what a table of a script maps kinds to: variables or colours."""
    found = re.search(rf"const {table}: Record<string, string> = {{(.*?)}};", (UI / file).read_text("utf-8"), re.DOTALL)
    assert found, f"{file} has no table {table}"
    return dict(re.findall(r'"?([\w.]+)"?: "([^"]+)"', found[1]))
