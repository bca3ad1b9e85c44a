"""How much of the job was recorded, and how far can that be trusted?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lostflops.explain.analyze.contents import contents
from lostflops.explain.analyze.quality import quality

if TYPE_CHECKING:
    from lostflops.core.results import Result
    from lostflops.store.run import Run


def trust(run: Run) -> Result:
    held, judged = contents(run), quality(run)
    return replace(
        judged,
        verdict=f"{held.verdict} {judged.verdict}",
        blocks=(*judged.blocks, *held.blocks),
        notes=(*held.notes, *judged.notes),
    )
