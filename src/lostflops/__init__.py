"""Where did the FLOPs go? Lostflops accounts for every nanosecond of distributed PyTorch training.

The public names are loaded on first use, so that `import lostflops` costs nothing. The function
that ingests traces is `lostflops.ingest.ingest`; it has no second name here, because a package
cannot hold a function and a subpackage of the same name.

>>> import lostflops
>>> issubclass(lostflops.LostflopsError, Exception)
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lostflops._version import __version__
    from lostflops.collect.api import record, step
    from lostflops.collect.trace_handler import trace_handler
    from lostflops.errors import LostflopsError
    from lostflops.store.run import Run

__all__ = ["LostflopsError", "Run", "__version__", "record", "step", "trace_handler"]

_HOMES = {
    "LostflopsError": "lostflops.errors",
    "Run": "lostflops.store.run",
    "__version__": "lostflops._version",
    "record": "lostflops.collect.api",
    "step": "lostflops.collect.api",
    "trace_handler": "lostflops.collect.trace_handler",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lostflops' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
