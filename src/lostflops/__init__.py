"""Where did the FLOPs go? Lostflops accounts for every nanosecond of distributed PyTorch training.

`open(run)` gives the answers of the command line to Python, each as a `Result`; `ingest` reads traces into a run;
`diff`, `diff_page`, `gate` and `score` compare runs, `ask_fleet` asks many at once. `record`, `step`, `mark` and
`trace_handler` are for training scripts. Names are loaded on first use, so that `import lostflops` costs nothing.

>>> import lostflops as lf
>>> issubclass(lf.LostflopsError, Exception)
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lostflops import _moved
from lostflops.core import notebook

if TYPE_CHECKING:
    from lostflops._version import __version__
    from lostflops.api import (
        TrainingRun,
        add_to_fleet,
        ask_fleet,
        diff,
        diff_page,
        doctor,
        estimate,
        gate,
        hang,
        ingest,
        open,  # noqa: A004
        scale,
        score,
        verify,
    )
    from lostflops.collect.api import mark, record, step
    from lostflops.collect.trace_handler import trace_handler
    from lostflops.core.errors import LostflopsError
    from lostflops.core.results import Finding, Result
    from lostflops.store.run import Run

__all__ = [
    "Finding",
    "LostflopsError",
    "Result",
    "Run",
    "TrainingRun",
    "__version__",
    "add_to_fleet",
    "ask_fleet",
    "diff",
    "diff_page",
    "doctor",
    "estimate",
    "gate",
    "hang",
    "ingest",
    "mark",
    "open",
    "record",
    "scale",
    "score",
    "step",
    "trace_handler",
    "verify",
]

_HOMES = {
    "Finding": "lostflops.core.results",
    "LostflopsError": "lostflops.core.errors",
    "Result": "lostflops.core.results",
    "Run": "lostflops.store.run",
    "TrainingRun": "lostflops.api",
    "add_to_fleet": "lostflops.api",
    "ask_fleet": "lostflops.api",
    "__version__": "lostflops._version",
    "diff": "lostflops.api",
    "diff_page": "lostflops.api",
    "doctor": "lostflops.doctor",
    "estimate": "lostflops.api",
    "gate": "lostflops.api",
    "hang": "lostflops.api",
    "ingest": "lostflops.ingest",
    "mark": "lostflops.collect.api",
    "open": "lostflops.api",
    "record": "lostflops.collect.api",
    "scale": "lostflops.api",
    "score": "lostflops.api",
    "step": "lostflops.collect.api",
    "trace_handler": "lostflops.collect.trace_handler",
    "verify": "lostflops.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lostflops' has no attribute {name!r}")
    module = import_module(_HOMES[name])
    return module if name in ("doctor", "ingest") else getattr(module, name)  # see callable_package


def __dir__() -> list[str]:
    return sorted(__all__)


def _draw(part: Any) -> str:
    """Return the HTML of an answer; loads the renderer when a notebook asks for it."""
    html: str = import_module("lostflops.show.report.notebook").html(part)
    return html


notebook.register(_draw)
_moved.keep_old_paths()
