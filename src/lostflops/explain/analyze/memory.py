"""What is using the memory, what caused the peak, and which rank has the highest peak?

At every moment each allocated byte belongs to one owner (one of them is `unattributed`), and owners sum to the
allocated memory. The rank with the highest peak is shown in full, the others by their own peaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lostflops.account.ledger.scope import scope
from lostflops.account.memory import answers, growth, marks, rank_peaks
from lostflops.account.memory import fragmentation_answers as fragmentation
from lostflops.account.memory.devices import in_question, kind_of, kinds
from lostflops.account.memory.growth import Grown, growth_of
from lostflops.account.memory.out_of_memory import out_of_memory
from lostflops.account.memory.peak import Peak, peak_of
from lostflops.account.memory.read import memories
from lostflops.account.memory.timeline import timeline
from lostflops.core.results import Block, Figure, Result

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress
    from lostflops.account.memory.blocks import RankMemory
    from lostflops.store.run import Run


def memory(
    run: Run,
    *,
    ranks: Sequence[int] = (),
    device: str | None = None,
    by: str = "layer",
    progress: Progress | None = None,
) -> Result:
    """Explain what is using the memory. `device` is a device such as `cuda:0`, or a kind such as `cpu`; by default
    accelerators, if any recorded memory."""
    asked = scope(run, None, ranks).ranks
    peaks: list[Peak] = []
    grown: list[Grown] = []
    fullest: dict[str, RankMemory] = {}
    for found in memories(run, asked):
        if progress is not None:
            progress(asked.index(found.rank), len(asked))
        peaks.append(peak_of(found))
        grown += growth_of(run, [found])
        # Memory of the highest alone is kept: those of thousands of ranks would not fit.
        most = fullest.setdefault(found.device, found)
        if most.peak_bytes < found.peak_bytes:
            fullest[found.device] = found
    if not peaks:
        nothing = _add_marks(_nothing(fragmentation.of_fullest(run, asked)), run, asked)
        return _add_out_of_memory(nothing, run, asked)
    alike = in_question(peaks, device)
    peak = max(alike, key=lambda one: (one.bytes, -one.rank))
    shown = fullest[peak.device]
    way = answers.way(shown, peak, by)
    parts = answers.owners(shown, peak, way)
    spread = rank_peaks.PeakSpread.of(alike)
    left = [one for one in _most_first(grown) if one.device in {other.device for other in alike}]
    first, second = ("modules", "layers") if by == "module" else ("layers", "modules")
    evidence: tuple[tuple[Block, bool], ...] = (
        (answers.places(shown, peak, first), way == by),
        (rank_peaks.ranks(alike), len(alike) > 1),
        (answers.report_reserved(shown, peak), shown.reserved.size > 0),
        (growth.table(left), bool(left)),
    )
    silent = sorted(set(asked) - {one.rank for one in peaks})
    holes = fragmentation.answer(run, shown.rank, shown.device, shown)
    result = Result(
        name="memory",
        title="Memory",
        verdict=" ".join(filter(None, (answers.verdict(peak, alike), spread.in_words(), growth.says(left)))),
        blocks=(
            parts,
            timeline(shown, _steps(run, shown.rank)),
            *(block for block, is_shown in evidence if is_shown),
            *holes.blocks,
        ),
        notes=(
            *shown.notes,
            *([answers.NO_MODULES] if way != by else []),
            *answers.notes(peak, parts, silent, _largest_without_owner(run, shown.rank)),
            *_other_devices(peaks, peak),
            *holes.notes,
        ),
        more=(
            answers.moment(peak),
            *(block for block, is_shown in evidence if not is_shown),
            answers.places(shown, peak, second),
            spread.pairs(),
            Figure("unattributed_share", peak.unattributed_share),
            *holes.more,
        ),
    )
    return _add_out_of_memory(_add_marks(result, run, asked), run, asked)


def _largest_without_owner(run: Run, rank: int) -> tuple[str, int] | None:
    rows = run.rows(
        f"select name, bytes from holdings where rank = {rank} and owner is null and name is not null "
        "order by bytes desc, name limit 1"
    )
    return (rows[0][0], rows[0][1]) if rows else None


def _add_marks(result: Result, run: Run, ranks: Sequence[int]) -> Result:
    """Add the memory at the marks of the program, if it set any; it is the answer if nothing else was recorded."""
    marked = marks.table(run, ranks)
    if not marked.rows:
        return replace(result, more=(*result.more, marked))
    is_all = not result.blocks
    return replace(
        result,
        verdict=" ".join((marks.describe(marked), result.verdict)) if is_all else result.verdict,
        blocks=(*result.blocks, marked),
        notes=(*result.notes, *marks.notes(run)),
    )


def _add_out_of_memory(result: Result, run: Run, ranks: Sequence[int]) -> Result:
    """Put how the job ran out of memory first, if it did."""
    ran_out = out_of_memory(run, ranks)
    if ran_out is None:
        return result
    says, section = ran_out
    return replace(result, verdict=f"{says} {result.verdict}", blocks=(section, *result.blocks))


def _most_first(grown: Sequence[Grown]) -> list[Grown]:
    return sorted(grown, key=lambda one: (-one.a_step, one.rank, one.site))


def _steps(run: Run, rank: int) -> list[tuple[int, int, int]]:
    return run.rows(f"select step, start, stop from steps where rank = {rank} order by start")


def _other_devices(peaks: Sequence[Peak], shown: Peak) -> Iterator[str]:
    if others := [kind for kind in kinds(one.device for one in peaks) if kind != kind_of(shown.device)]:
        yield f"Memory of {', '.join(others)} was recorded too: use --device {others[0]}."


def _nothing(holes: fragmentation.FragmentationAnswer) -> Result:
    return Result(
        name="memory",
        title="Memory",
        verdict=f"No memory events were recorded. To record them: {answers.HOW_TO_RECORD}",
        blocks=holes.blocks,
        notes=holes.notes,
        more=(
            Figure("peak", None),
            Figure("owners", ()),
            Figure("timeline", None),
            rank_peaks.ranks(()),
            Figure("spread", None),
            Figure("unattributed_share", None),
            *holes.more,
            growth.table(()),
        ),
    )
