"""Experiment trackers: each module logs the summary of a run to one tracker.

They get a `Summary` and do not read runs. The package of each tracker is optional, and imported on use.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from lostflops.core.errors import UsageError

PREFIX: Final = "lostflops/"
"""Prefix of each name, so that a tracker shows them together."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run for a tracker."""

    name: str
    metrics: Mapping[str, float]
    """Single figures."""
    series: tuple[tuple[int, Mapping[str, float]], ...]
    """Figures of each step."""
    card: str
    """Markdown text."""
    page: Path
    """The HTML report."""


TRACKERS: Final = ("wandb", "mlflow", "tensorboard")


def log(tracker: str, summary: Summary, where: str) -> str:
    """Log a summary to `where`: a project of W&B, a tracking URI of MLflow, a folder of TensorBoard. Return where to
    look."""
    if tracker not in TRACKERS:
        raise UsageError(f"{tracker!r} is not a tracker: choose one of {', '.join(TRACKERS)}")
    try:
        write: Callable[[Summary, str], str] = import_module(f"lostflops.show.export.trackers.to_{tracker}").write
    except ModuleNotFoundError:
        raise UsageError(f"{tracker} is not installed here: pip install {tracker}") from None
    return write(summary, where)
