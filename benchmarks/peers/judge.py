"""What a tool said of a job, held to what is true: the same rules for all tools.

right: the first finding names the cause, or one of the causes; of a late rank, the right one.
partly: one of the first three findings names the cause, lists it among others, or names the part of the step that it
    is in.
wrong: there are findings, and none of the first three is of that kind; in a healthy job, any finding.
nothing: no finding; in a healthy job that is right.

A finding is a statement that time or memory of steps is lost. Verdicts that a tool itself calls mere information, and
loads of processors and memory that it does not blame for slow steps, are none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

RIGHT, PARTLY, NOTHING, WRONG = "right", "partly", "nothing", "wrong"
TOP: Final = 3
_IN_BACKWARD: Final = frozenset({"exposed_comm", "bucket_size", "missing_no_sync", "slow_link", "small_batch"})
_AFTER_STEP: Final = frozenset({"host_python", "checkpoint", "gc", "sync", "exposed_comm", "small_messages"})
_LATE: Final = frozenset({"straggler", "work_imbalance"})


@dataclass(frozen=True, slots=True)
class Meaning:
    """Causes that a finding names, and those that it lists or whose place in the step it names."""

    names: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()


def _means(names: str, lists: frozenset[str] = frozenset(), *, more: str = "") -> Meaning:
    return Meaning(frozenset(names.split()), lists | frozenset(more.split()))


MEANINGS: Final[Mapping[str, Meaning]] = {
    # traceml-ai: kinds of its diagnoses
    "INPUT_BOUND": _means("input_pipeline"),
    "INPUT_STRAGGLER": _means("straggler", _LATE, more="input_pipeline"),
    "COMPUTE_STRAGGLER": _means("straggler", _LATE),
    "H2D_STRAGGLER": _means("straggler", _LATE, more="copies"),
    "STRAGGLER": _means("straggler", _LATE, more="sync"),
    "H2D_BOUND": _means("copies"),
    "RESIDUAL_HEAVY": _means("", _AFTER_STEP, more="copies"),
    "CREEP_CONFIRMED": _means("memory_growth"),
    "CREEP_EARLY": _means("memory_growth"),
    "IMBALANCE": _means("", _LATE),
    # pytscope: codes of its findings; of the budget, with the line that it would start with
    "TIMING.DATALOADER_BOUND": _means("input_pipeline"),
    "TIMING.BACKWARD_HEAVY": _means("", _IN_BACKWARD, more="recompute unfused precision"),
    "TIMING.OPTIMIZER_HEAVY": _means("optimizer"),
    "TIMING.JITTER": _means("", more="input_pipeline gc host_python checkpoint work_imbalance"),
    "DIST.STRAGGLER": _means("straggler", _LATE),
    "DIST.LOAD_IMBALANCE": _means("work_imbalance", _LATE),
    "DIST.COMM_BOUND": _means("exposed_comm", _IN_BACKWARD, more="sync small_messages"),
    "DIST.EXPOSED_COMM": _means("exposed_comm", _IN_BACKWARD, more="small_messages"),
    "EFFICIENCY.RECOVERABLE data_stall": _means("input_pipeline"),
    "EFFICIENCY.RECOVERABLE communication": _means("exposed_comm", _IN_BACKWARD, more="sync small_messages"),
    "EFFICIENCY.RECOVERABLE other": _means("", _AFTER_STEP),
    "EFFICIENCY.RECOVERABLE compute_overhead": _means("", more="precision unfused"),
    "MEMORY.GROWTH": _means("memory_growth"),
    "MEMORY.FRAGMENTATION": _means("allocator"),
}


@dataclass(frozen=True, slots=True)
class Said:
    """`code` is the tool's own name of a statement, or our id of a cause; `words` are a few of its own."""

    code: str
    words: str
    ranks: tuple[int, ...] = ()
    is_information: bool = False

    @property
    def meaning(self) -> Meaning | None:
        """None where it is no finding."""
        return None if self.is_information else MEANINGS.get(self.code)

    def to_json(self) -> dict[str, Any]:
        told = {"code": self.code, "words": self.words, "ranks": list(self.ranks)}
        return told | {"is_information": True} if self.is_information else told

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Said:
        return cls(told["code"], told["words"], tuple(told["ranks"]), told.get("is_information", False))


def findings(said: Sequence[Said]) -> list[tuple[Said, Meaning]]:
    return [(one, one.meaning) for one in said if one.meaning is not None]


def judge(found: Sequence[tuple[Said, Meaning]], causes: Sequence[str], late: int | None = None) -> str:
    """`late` is the rank that holds the others up, where the job has one."""
    if not found:
        return NOTHING if causes else RIGHT
    if _fits(found[0][1].names, found[0][0], causes, late):
        return RIGHT
    near = any(_fits(means.names | means.lists, one, causes, late) for one, means in found[:TOP])
    return PARTLY if near else WRONG


def _fits(told: frozenset[str], said: Said, causes: Sequence[str], late: int | None) -> bool:
    is_elsewhere = late is not None and bool(said.ranks) and late not in said.ranks
    return any(cause in told and not (is_elsewhere and cause in _LATE) for cause in causes)


def late_rank(flags: str) -> int | None:
    """Whom a job of the clinic makes late, by its flags.

    >>> late_rank("--workers 0 --slow 1:1.6"), late_rank("--rank-batch 6,6,12"), late_rank("--workers 0")
    (1, 2, None)
    """
    if one := re.search(r"--(?:slow|far-disk|preview) (\d+):", flags):
        return int(one[1])
    if each := re.search(r"--rank-batch ([\d,]+)", flags):
        sizes = [int(size) for size in each[1].split(",")]
        return sizes.index(max(sizes))
    return None
