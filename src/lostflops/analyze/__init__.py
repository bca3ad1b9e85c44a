"""One question per file, each a function from a run to a result.

An analysis reads tables and returns data: it opens no files and draws nothing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from lostflops.analyze.comm import comm
from lostflops.analyze.contents import contents
from lostflops.analyze.flame import flame
from lostflops.analyze.hang import hang
from lostflops.analyze.kernels import kernels
from lostflops.analyze.lateness import lateness
from lostflops.analyze.memory import memory
from lostflops.analyze.overlap import overlap
from lostflops.analyze.pipeline import pipeline
from lostflops.analyze.quality import quality
from lostflops.analyze.ranks import ranks
from lostflops.analyze.report import report
from lostflops.analyze.steps import steps
from lostflops.analyze.timeline import timeline
from lostflops.results import Result

if TYPE_CHECKING:
    from lostflops.store.run import Run

ANALYSES: tuple[Callable[["Run"], Result], ...] = (
    contents,
    quality,
    report,
    steps,
    timeline,
    kernels,
    memory,
    comm,
    overlap,
    ranks,
    lateness,
    pipeline,
    flame,
    hang,
)
