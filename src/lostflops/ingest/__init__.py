"""Conversion of foreign files to rows of our tables. This package knows formats, not questions.

`ingest(sources, out)` does all of it; the other modules are its parts.
"""

from lostflops.core.callable_package import make_callable
from lostflops.ingest.ingest import IngestSummary, ingest
from lostflops.ingest.rounds import IngestProgress

__all__ = ["IngestProgress", "IngestSummary", "ingest"]

make_callable(__name__)
