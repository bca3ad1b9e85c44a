"""One question per file, each a function from a run to a result.

An analysis reads tables and returns data: it opens no files and draws nothing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from lostflops.analyze.contents import contents
from lostflops.analyze.quality import quality
from lostflops.results import Result

if TYPE_CHECKING:
    from lostflops.store.run import Run

ANALYSES: tuple[Callable[["Run"], Result], ...] = (contents, quality)
