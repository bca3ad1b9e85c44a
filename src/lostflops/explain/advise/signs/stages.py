"""The pipeline: its stages, the work of each, and the number of microbatches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lostflops.account.align.passes import UnknownPasses, passes
from lostflops.account.align.schedule import grid
from lostflops.account.late.comparison import OWN_LINES
from lostflops.account.late.ranks import in_steps
from lostflops.account.ledger.lines import LINES

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

Floats = npt.NDArray[np.float64]
_OWN: Final = [LINES.index(line) for line in OWN_LINES]
_SENT: Final = """
    select step, count(*) from collectives
    where rank in ({first}) and peer in ({second}) and op = 'send' and step is not null group by rank, step"""
_SHAPED: Final = "select exists (select 1 from events where kind = 'op' and shapes is not null)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Stages of a pipeline, and the work of each."""

    ranks: tuple[tuple[int, ...], ...]
    """Ranks of each stage, in order of stages."""
    steps: npt.NDArray[np.int64]
    own: Floats
    """Time that a typical rank spends on other lines than communication, by stage and step, in ns."""
    step_ns: float
    microbatches: int | None
    """Number of microbatches per step; None if unknown."""
    chunks: int = 1
    """Number of model chunks per rank."""

    @property
    def count(self) -> int:
        return len(self.ranks)

    @property
    def usual(self) -> Floats:
        """Mean time of each stage, in ns per step."""
        found: Floats = self.own.mean(axis=1)
        return found

    def inherent(self, microbatches: int) -> float:
        """Return the part of its time that a pipeline of equal stages always idles: (p - 1) / (v m + p - 1)."""
        return (self.count - 1) / (self.chunks * microbatches + self.count - 1)


def stages(case: Case) -> Stages | None:
    """Return the stages; None if there is no pipeline, or not every stage was recorded in steps."""
    comparison = case.judgement.comparison
    count = dict(case.mesh.dimensions).get("pp", 1)
    if count < 2 or count > comparison.ranks.size or not in_steps(comparison):
        return None
    stage = np.array([case.mesh.stage(rank) for rank in comparison.ranks.tolist()])
    if np.unique(stage).size < count:
        return None
    own = np.stack([_lower_median(_own(case)[stage == one]) for one in range(count)])
    known = ~np.isnan(own).any(axis=0)
    if not known.any():
        return None
    ranks = tuple(tuple(comparison.ranks[stage == one].tolist()) for one in range(count))
    microbatches, chunks = _microbatches(case, ranks)
    return Stages(
        ranks=ranks,
        steps=comparison.steps[known],
        own=own[:, known],
        step_ns=float(comparison.wall.mean()),
        microbatches=microbatches,
        chunks=chunks,
    )


def _own(case: Case) -> Floats:
    """Return the time outside communication by rank and step, in ns; NaN if a step was not compared."""
    comparison = case.judgement.comparison
    found: Floats = np.full(comparison.by_step.shape, np.nan)
    for one in case.judgement.profiles:
        if one.steps.size:
            columns = np.searchsorted(comparison.steps, one.steps)
            found[comparison.place(one.rank), columns] = one.lines[:, _OWN].sum(axis=1)
    return np.where(np.isnan(comparison.by_step), np.nan, found)


def _lower_median(values: Floats) -> Floats:
    """Return the lower median of the rows, so that one slow rank does not make a stage slow."""
    found: Floats = np.sort(values, axis=0)[(values.shape[0] - 1) // 2]
    return found


def _microbatches(case: Case, ranks: tuple[tuple[int, ...], ...]) -> tuple[int | None, int]:
    """Return the number of microbatches and of model chunks per rank. If the passes are unknown, count transfers
    between stages in a step; None if nothing was recorded."""
    try:
        made = grid(passes(case.run, case.mesh), case.mesh)
    except UnknownPasses:
        forward = _sent(case, ranks[0], ranks[1])
        if forward is None:
            return None, 1
        if len(ranks) > 2:
            return split_transfers(forward, _sent(case, ranks[-1], ranks[0]) or 0)
        ((passes_of_step,),) = case.run.rows("select median(microbatches) from timings")
        # Both neighbours are one rank: of m microbatches in v chunks it sends v m outputs and (v - 1) m gradients.
        return split_transfers(round(passes_of_step or forward), forward - round(passes_of_step or forward))
    return made.microbatches, made.chunks


def _sent(case: Case, source: tuple[int, ...], target: tuple[int, ...]) -> int | None:
    """Return how often a rank of one stage sends to the other in a step; None if it never does."""
    first, second = (", ".join(map(str, stage)) for stage in (source, target))
    counts = [count for _, count in case.run.rows(_SENT.format(first=first, second=second))]
    return int(np.median(counts)) if counts else None


def split_transfers(forward: int, around: int) -> tuple[int, int]:
    """Return the microbatches and the chunks per rank: each microbatch goes forward once for each chunk, and around,
    from the last stage to the first, once less.

    >>> split_transfers(8, 0), split_transfers(8, 4), split_transfers(8, 3)
    ((8, 1), (4, 2), (8, 1))
    """
    microbatches = forward - around
    if around < 0 or microbatches <= 0 or forward % microbatches:
        return forward, 1
    return microbatches, forward // microbatches


def is_shaped(case: Case) -> bool:
    """Return whether shapes of ops were recorded, which show how large a microbatch is."""
    ((found,),) = case.run.rows(_SHAPED)
    return bool(found)
