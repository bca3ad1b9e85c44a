"""The choices of modules to run again that are worth it, as a result: peak against time, and the code for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.memory.answers import WITH_MEMORY
from lostflops.account.memory.fullest import fullest
from lostflops.core.results import Field, Pair, Pairs, Result, Table
from lostflops.core.units import format_bytes, format_ns, format_share, pluralise
from lostflops.predict.whatif.recomputation.choose import Choice, frontier
from lostflops.predict.whatif.recomputation.code import code
from lostflops.predict.whatif.recomputation.kept import find_kept_blocks
from lostflops.predict.whatif.recomputation.options import Options, options
from lostflops.predict.whatif.recomputation.read import recomputable

if TYPE_CHECKING:
    from lostflops.predict.whatif.recomputation.recomputable import Recomputable
    from lostflops.store.run import Run

_MOST_MODULES: Final = 12
_NAMES_SHOWN: Final = 6


def frontier_of(run: Run, ranks: Sequence[int] = ()) -> Result:
    """Show the frontier of the memory with the highest peak among these ranks, or among all."""
    told = recomputable(run, fullest(run, ranks))
    if told is None or not told.calls.modules:
        why = "no memory was recorded" if told is None else "no module was recorded in both forward and backward"
        again = f"Record with lostflops run {WITH_MEMORY}."
        return Result("frontier", "Modules to recompute", f"Inconclusive: {why}. {again}", (_points(None, (), (), 0),))
    have = options(told.memory, told.calls)
    line = frontier(have)
    step = _step(run, told.memory.rank)
    return Result(
        name="frontier",
        title="Modules to recompute",
        verdict=_verdict(told, line),
        blocks=(_points(told, line, have.modules, step), _modules(told, have), _about(told, line, step)),
        notes=(*_notes(line), *told.calls.notes),
    )


def _verdict(told: Recomputable, line: Sequence[Choice]) -> str:
    first, last = line[0], line[-1]
    peak = f"Peak memory is {format_bytes(first.peak)} on rank {told.memory.rank} ({told.memory.device})"
    if len(line) == 1:
        return f"{peak}; recomputing modules in backward does not lower it."
    return (
        f"{peak}; recomputing modules in backward lowers it to {format_bytes(last.peak)} at best, "
        f"{format_share(1 - last.peak / first.peak)} less, for {format_ns(last.ns)} more per step."
    )


def _points(told: Recomputable | None, line: Sequence[Choice], modules: Sequence[str], step: float) -> Table:
    fields = (
        Field("peak", "bytes"),
        Field("saved", "share"),
        Field("again_ns", "ns", "extra per step"),
        Field("slower", "share", "of the step"),
        Field("shown", label="modules to recompute"),
        Field("exact", shown=False),
    )
    rows, more = [], []
    for one in line if told is not None else ():
        names = [modules[at] for at in one.chosen]
        share = one.ns / step if step else None
        rows.append((one.peak, 1 - one.peak / line[0].peak, one.ns, share, _short(names), one.exact))
        more.append({"modules": names, "change": f"recompute={','.join(names)}" if names else None})
        more[-1]["code"] = code(names) if names else None
    title = "Best trade-offs between peak memory and step time"
    return Table("frontier", title, fields, tuple(rows), more=tuple(more))


def _modules(told: Recomputable, have: Options) -> Table:
    """Tabulate the modules; those that keep most bytes per ms of recomputation are first."""
    memory, count = told.memory, len(have.modules)
    dropped, back = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for one in find_kept_blocks(memory, told.calls):
        size = memory.blocks.bytes
        given = int(size[one.given]) if one.given >= 0 and memory.blocks.died[one.given] < one.back else 0
        dropped[one.module] = max(dropped[one.module], int(size[one.dropped].sum()) - given)
        back[one.module] = max(back[one.module], int(size[one.back_again].sum()))
    per_ms = dropped / np.maximum(have.cost / 1e6, 1e-6)
    order = [at for at in np.argsort(-per_ms, kind="stable").tolist() if dropped[at] > 0]
    fields = (
        Field("module"),
        Field("kept", "bytes", "keeps"),
        Field("back", "bytes", "back in backward"),
        Field("again_ns", "ns", "recompute time"),
        Field("bytes_per_ms", "bytes", "kept per ms"),
    )
    rows = tuple(
        (have.modules[at], int(dropped[at]), int(back[at]), int(have.cost[at]), round(float(per_ms[at])))
        for at in order
    )
    title = "What modules keep for backward, and the time to recompute it"
    return Table("modules", title, fields, rows, most_shown=_MOST_MODULES)


def _about(told: Recomputable, line: Sequence[Choice], step: float) -> Pairs:
    items = (
        Pair("rank", told.memory.rank),
        Pair("device", told.memory.device),
        Pair("peak", line[0].peak, "bytes", "recorded peak"),
        Pair("step_ns", round(step), "ns", "recorded step, mean"),
        Pair("steps", told.calls.steps, "count", "steps with memory"),
    )
    return Pairs("recorded", "Recorded", items)


def _notes(line: Sequence[Choice]) -> tuple[str, ...]:
    if len(line) == 1:
        return ()
    middle = min(line[1:], key=lambda one: abs(2 * one.peak - line[0].peak - line[-1].peak))
    fits = format_bytes(middle.peak + 10 ** max(len(str(middle.peak)) - 3, 0)).replace(" ", "")
    stays = (
        "The inputs of a recomputed module stay in memory, and so does its output if later modules need it; everything "
        "it kept comes back while its backward runs. torch.utils.checkpoint stops recomputing once backward has what "
        "it needs."
    )
    then = (
        "--json has the code for each choice. lostflops whatif RUN --change recompute=BYTES (such as "
        f"{fits}) takes the cheapest choice that fits and predicts its step time."
    )
    notes = [stays, then]
    if not all(one.exact for one in line):
        notes.append("There are too many modules to search every choice: cheaper ones may exist.")
    return tuple(notes)


def _short(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {pluralise(more, 'other')}" if more > 0 else shown or "none"


def _step(run: Run, rank: int) -> float:
    (found,) = run.rows(f"select avg(stop - start) from steps where rank = {rank}")[0]
    return float(found or 0)
