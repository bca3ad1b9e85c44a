"""Exposed communication, from the ledger alone: for serving, and for runs that cannot be replayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lostflops.core.estimate import Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_bytes, format_ns, format_share, pluralise
from lostflops.explain.advise.claim import Claim
from lostflops.explain.advise.signs.traffic import TRANSFER

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_SMALLEST: Final = 0.02
"""Exposed transfers must take at least this share of all time."""
_MOST_LISTED: Final = 3
_CALLS: Final = """
    select coalesce(op, 'unknown'), count(*), count(distinct rank), sum(stop - start)::bigint,
           coalesce(sum(greatest(bytes_in, bytes_out)), 0)::bigint
    from collectives group by 1 order by 4 desc limit {most}"""
_LONGEST: Final = "select rank, event from collectives order by stop - start desc, rank, event limit {most}"
_SERVING: Final = (
    "Use smaller tensor-parallel groups and more replicas, or a custom or fused all-reduce (vLLM: remove "
    "--disable-custom-all-reduce; SGLang: --enable-flashinfer-allreduce-fusion). Or overlap two batches (SGLang: "
    "--enable-two-batch-overlap)."
)
_TRAINING: Final = (
    "Use DDP, or FSDP2 on each block with prefetching, which overlap communication with compute. Or start transfers "
    "early with async_op=True and wait for them late. lostflops comm shows which calls are exposed."
)


def has_backward(case: Case) -> bool:
    """Return whether any rank ran a backward pass."""
    return bool(sum(case.total.phases.get("backward", {}).values()))


def unhidden(case: Case) -> Iterator[Claim]:
    """Yield the exposed communication of the whole window, if it is enough to matter."""
    taken = {(rank, TRANSFER): lines[TRANSFER] for rank, lines in case.lines.items() if lines[TRANSFER]}
    share = sum(taken.values()) / (case.wall or 1)
    if share < _SMALLEST:
        return
    is_alone = len(case.lines) == 1
    yield Claim(
        cause="exposed_comm",
        what=f"Exposed communication takes {format_share(share)} of the time of all ranks: nothing computes meanwhile.",
        taken=taken,
        evidence=tuple(_evidence(case)),
        strength=Strength.FAIR if is_alone else Strength.STRONG,
        certain_if=(
            "record the other ranks too: with only one rank, waits for the others count as transfer."
            if is_alone
            else "run lostflops comm RUN: the same calls must be exposed on every rank."
        ),
        fix=_TRAINING if has_backward(case) else _SERVING,
        changes=("overlap=perfect",),
    )


def _evidence(case: Case) -> Iterator[Evidence]:
    longest = tuple(case.run.rows(_LONGEST.format(most=_MOST_LISTED)))
    calls = [_describe_calls(*row) for row in case.run.rows(_CALLS.format(most=_MOST_LISTED))]
    if not case.total.could_hide:
        hidden = "there was no compute to hide communication"
    else:
        hidden = f"compute hides {format_share(case.total.hidden / case.total.could_hide)} of the communication"
    yield Evidence("; ".join([*calls, hidden]), events=longest, ranks=tuple(sorted(case.lines)))


def _describe_calls(op: str, calls: int, ranks: int, ns: int, size: int) -> str:
    of = f" of {format_bytes(size // calls)}" if size else ""
    return f"per rank: {pluralise(round(calls / ranks), op)}{of}, {format_ns(ns // ranks)} in total"
