"""Renderers of results. A renderer writes any `Result` to a text stream."""

from dataclasses import dataclass
from importlib import import_module
from typing import TextIO

from lostflops.core.results import Result


@dataclass(frozen=True, slots=True)
class Renderer:
    name: str
    module: str
    """Module of this package that writes; imported on first use, because `--json` must not wait for rich."""

    def write(self, result: Result, stream: TextIO) -> None:
        import_module(f"{__name__}.{self.module}").write(result, stream)


RENDERERS = (
    Renderer("terminal", "terminal"),
    Renderer("json", "plain"),
    Renderer("svg", "svg"),
    Renderer("markdown", "markdown"),
)


def renderer(name: str) -> Renderer:
    """Return the renderer of this name; raise KeyError if there is none."""
    return {candidate.name: candidate for candidate in RENDERERS}[name]
