"""Foreign bytes to rows of our tables. Knows formats, not questions.

`ingest(sources, out)` is the whole of it; the other modules are its parts.
"""

from lostflops.ingest.ingest import IngestSummary, Progress, ingest

__all__ = ["IngestSummary", "Progress", "ingest"]
