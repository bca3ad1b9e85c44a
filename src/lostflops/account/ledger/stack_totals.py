"""Stacks of several ranks by line of the ledger, and the block that draws them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lostflops.account.facts.source_code import code_of
from lostflops.account.ledger.samples import FEWEST, LineStacks, Sampled
from lostflops.core.results import Stacks

TOO_FEW: Final = "too few samples"


@dataclass(slots=True, kw_only=True)
class StackTotals:
    """Some lines of all ranks that have samples."""

    ranks: int = 0
    """Number of ranks."""
    whole: int = 0
    """Time of the ranks on all lines, in ns."""
    lines: Counter[str]
    """Time of the ranks on each of these lines, in ns."""
    counts: LineStacks
    """How often each stack was read."""
    times: LineStacks
    """Time that each stack represents, in ns."""
    fewest: int
    """A line with fewer samples is not known."""

    @classmethod
    def of(cls, lines: Sequence[str], fewest: int = FEWEST) -> StackTotals:
        """Return totals of these lines, without any rank."""
        return cls(
            lines=Counter(dict.fromkeys(lines, 0)),
            counts={line: Counter() for line in lines},
            times={line: Counter() for line in lines},
            fewest=fewest,
        )

    def add(self, sampled: Sampled) -> None:
        """Add a rank."""
        self.ranks += 1
        self.whole += sum(sampled.lines.values())
        for line in self.counts:
            self.lines[line] += sampled.lines[line]
            self.counts[line].update(sampled.counts.get(line, Counter()))
            self.times[line].update(sampled.times.get(line, Counter()))

    @property
    def known_lines(self) -> list[str]:
        """Lines with enough samples."""
        return [line for line, counts in self.counts.items() if counts.total() >= self.fewest]

    @property
    def samples(self) -> int:
        """Number of samples on all lines."""
        return sum(counts.total() for counts in self.counts.values())


def draw_stacks(total: StackTotals) -> Stacks:
    """Return every line in full; time with too few samples, or none on its rank, is a stack that says so."""
    items: list[tuple[tuple[str, ...], int, int]] = []
    for line, ns in total.lines.items():
        counts, rest = total.counts[line], ns
        if line in total.known_lines:
            times = total.times[line].most_common()
            items += [((line, *stack.split(";")), counts[stack], own) for stack, own in times]
            rest -= total.times[line].total()
        if rest:
            items.append(((line, TOO_FEW), 0 if line in total.known_lines else counts.total(), rest))
    frames = {frame for stack, _, _ in items for frame in stack[1:]}
    kinds = {frame: code_of(frame) for frame in frames - {TOO_FEW}} | dict.fromkeys(total.lines, "line")
    return Stacks("stacks", "Stacks", tuple(items), kinds)
