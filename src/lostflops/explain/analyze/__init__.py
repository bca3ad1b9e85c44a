"""One question per file, each a function from a run to a result.

An analysis reads tables and returns data: it opens no files and draws nothing.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from lostflops.core.results import Result
from lostflops.explain.analyze.comm import comm
from lostflops.explain.analyze.contents import contents
from lostflops.explain.analyze.flame import flame
from lostflops.explain.analyze.hang import hang
from lostflops.explain.analyze.kernels import kernels
from lostflops.explain.analyze.lateness import lateness
from lostflops.explain.analyze.layers import layers
from lostflops.explain.analyze.memory import memory
from lostflops.explain.analyze.overlap import overlap
from lostflops.explain.analyze.pipeline import pipeline
from lostflops.explain.analyze.quality import quality
from lostflops.explain.analyze.ranks import ranks
from lostflops.explain.analyze.report import report
from lostflops.explain.analyze.selection import selection
from lostflops.explain.analyze.steps import steps
from lostflops.explain.analyze.timeline import timeline

if TYPE_CHECKING:
    from lostflops.store.run import Run

ANALYSES: tuple[Callable[["Run"], Result], ...] = (
    contents,
    quality,
    report,
    steps,
    timeline,
    selection,
    kernels,
    memory,
    comm,
    overlap,
    layers,
    ranks,
    lateness,
    pipeline,
    flame,
    hang,
)
