"""What bounds a job, in one word that follows from its ledger.

| word | time |
|---|---|
| compute | kernels that multiply (matmul, attention, convolution) or whose class is unknown |
| memory | all other kernels, which read and write more than they compute; `copy`; `idle.alloc` |
| communication | `comm.transfer`, and `comm.wait` that no late rank explains |
| input | `idle.data` |
| host | `idle.host`, `idle.python`, `idle.sync`, `idle.compile` |

A wait is not communication if the rank that was late was busy with something else: it counts as what that rank did more
of than the mean rank. The word with the most time is the answer if it has `LEAD` times as much as the next; otherwise
the job is balanced. `comm.bubble`, `idle.dependency`, `idle.bubble` and `unexplained` have no word; there is no answer
if their time, with waits for it, is more than that of the first word.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.total import RankLines, RunLedger
from lostflops.account.ledger.work import MATMUL_CLASSES

Word = Literal["compute", "memory", "communication", "input", "host"]
WORDS: Final[tuple[Word, ...]] = ("compute", "memory", "communication", "input", "host")
LEAD: Final = 1.25

_WORDS: Final[dict[str, Word]] = {
    "compute": "compute",
    "comm.transfer": "communication",
    "copy": "memory",
    "idle.data": "input",
    "idle.sync": "host",
    "idle.alloc": "memory",
    "idle.compile": "host",
    "idle.host": "host",
    "idle.python": "host",
}
"""Word of each line; of `compute`, kernels that do not multiply count as memory, and `comm.wait` as its cause."""
_MULTIPLYING: Final = (*MATMUL_CLASSES, "other")
_WAIT: Final = "comm.wait"
_LATE: Final = "for rank "
"""How the parts of `comm.wait` begin: the number of the late rank follows."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Time of each word as a share of the whole, and the word that follows."""

    shares: dict[Word, float]

    @classmethod
    def of(cls, total: RunLedger) -> Bound:
        spent: Counter[Word] = Counter()
        for line, word in _WORDS.items():
            spent[word] += total.lines[line]
        classes = total.parts.get("compute", Counter())
        moving = sum(ns for name, ns in classes.items() if name not in _MULTIPLYING)
        spent["compute"] -= moving
        spent["memory"] += moving
        multiplying = 1 - moving / total.lines["compute"] if total.lines["compute"] else 1.0
        for word, ns in _waits(total, multiplying).items():
            spent[word] += ns
        return cls({word: spent[word] / total.total_ns if total.total_ns else 0.0 for word in WORDS})

    @property
    def word(self) -> Word | Literal["balanced"] | None:
        """None if nothing was recorded, or most of it has no word."""
        (first, most), (_, second) = Counter(self.shares).most_common(2)
        if not most or most < 1 - sum(self.shares.values()):
            return None
        return first if most >= LEAD * second else "balanced"


def _waits(total: RunLedger, multiplying: float) -> Counter[Word]:
    """Return the time of waits by what late ranks did instead of arriving, as far as that has a word."""
    by_rank = {rank.rank: rank for rank in total.ranks}
    found: Counter[Word] = Counter()
    explained = 0
    for name, ns in total.parts.get(_WAIT, Counter()).items():
        number = name.removeprefix(_LATE)
        extra = _extra(by_rank[int(number)], total) if number.isdecimal() and int(number) in by_rank else {}
        explained += ns if extra else 0
        for line, share in extra.items():
            if line in _WORDS:
                found[_WORDS[line]] += round(ns * share)
    found["memory"] += round(found["compute"] * (1 - multiplying))
    found["compute"] = round(found["compute"] * multiplying)
    found["communication"] += total.lines[_WAIT] - explained
    return found


def _extra(late: RankLines, total: RunLedger) -> dict[str, float]:
    """Return by how much the shares of a late rank exceed those of the mean rank, by line, as parts of 1."""
    more = {line: late.lines[line] / (late.wall or 1) - total.share(line) for line in LINES if line != _WAIT}
    whole = sum(share for share in more.values() if share > 0)
    return {line: share / whole for line, share in more.items() if share > 0}
