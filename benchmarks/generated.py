"""Pages of the docs whose figures benchmarks write: kept fresh by running a renderer, held fresh by its --check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def below(page: Path, mark: str, text: str) -> str:
    """The page with that text below its mark; what stands above is written by hand."""
    return page.read_text(encoding="utf-8").split(mark, maxsplit=1)[0] + mark + text


def written(page: Path, text: str, renderer: str, arguments: Sequence[str]) -> int:
    """An exit code: with --check 1 where the page says something else."""
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in arguments:
        print(f"{page.relative_to(ROOT)}: stale, run python -m {renderer}")
        return 1
    page.write_text(text, encoding="utf-8")
    return 0
