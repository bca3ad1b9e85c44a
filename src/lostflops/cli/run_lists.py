"""Several runs as one argument, and parts of a step, as `diff` and `gate` take them."""

from __future__ import annotations

import re
from glob import glob, has_magic
from pathlib import Path
from typing import Annotated, Final

import typer

from lostflops.core.errors import UsageError

AnywayOption = Annotated[bool, typer.Option("--anyway", help="Compare even if device, world size or model differ.")]
_PART: Final = re.compile(r"\s*(\d{1,6}(?:\.\d{1,9})?|\.\d{1,9})\s*(%?)\s*")


def runs_of(text: str) -> list[Path]:
    """Return the runs in a text, with commas between them; each may be a pattern, or a folder that holds runs. If a
    file or folder of exactly this name exists, it is meant, commas and brackets included."""
    if Path(text).exists():
        return _inside(Path(text))
    found: list[Path] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        found += _matching(word) if has_magic(word) and not Path(word).exists() else _inside(Path(word))
    if not found:
        raise UsageError(f"no run in {text!r}")
    return list(dict.fromkeys(found))


def _matching(pattern: str) -> list[Path]:
    """Return the runs that match; if there are any, other files such as logs are ignored."""
    from lostflops.store.manifest import is_run

    places = sorted(map(Path, glob(pattern)))  # noqa: PTH207 - absolute ones too
    if not places:
        raise UsageError(f"nothing matches {pattern}")
    runs = [run for place in places for run in _inside(place)]
    return [run for run in runs if is_run(run)] or runs


def _inside(place: Path) -> list[Path]:
    from lostflops.store.manifest import is_run

    if is_run(place):
        return [place]
    return sorted(inner for inner in place.glob("*/") if is_run(inner)) or [place]


def part(text: str, option: str) -> float:
    """Parse a part of a step, from percent or a number.

    >>> part("3%", "--margin"), part("0.03", "--margin")
    (0.03, 0.03)
    """
    match = _PART.fullmatch(text)
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < value < 1:
        raise UsageError(f"{option} {text!r} is not a share between 0 and 1: write 3% or 0.03")
    return value
