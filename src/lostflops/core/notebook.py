"""HTML of answers in a notebook: a renderer registers here, so that answers do not import a renderer."""

from collections.abc import Callable
from typing import Any

_draw: Callable[[Any], str] | None = None


def register(draw: Callable[[Any], str]) -> None:
    """Register `draw` as the function that makes the HTML of answers and their blocks."""
    global _draw  # noqa: PLW0603 - one renderer for the process
    _draw = draw


def as_html(part: Any) -> str | None:
    """Return the HTML of an answer or a block; None if no renderer was registered, so that a notebook prints it."""
    return None if _draw is None else _draw(part)
