"""Renderers of results. A renderer writes any `Result` to a text stream."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from lostflops.core.results import Result
from lostflops.show.report import markdown, plain, svg, terminal


@dataclass(frozen=True, slots=True)
class Renderer:
    name: str
    write: Callable[[Result, TextIO], None]


RENDERERS = (
    Renderer("terminal", terminal.write),
    Renderer("json", plain.write),
    Renderer("svg", svg.write),
    Renderer("markdown", markdown.write),
)


def renderer(name: str) -> Renderer:
    """Return the renderer of this name; raise KeyError if there is none."""
    return {candidate.name: candidate for candidate in RENDERERS}[name]
