"""When does a job get worse? Its steps are compared with those before them, in blocks.

A block is eight steps or more that last eight seconds or more together, and its time is their median: a checkpoint or a
hiccup does not move it. A block is slow if it takes a tenth longer than the median of the blocks before it, and by
several of their deviations. Two blocks in a row that are far off, or four that are somewhat off, are a change. A job
that slows down little by little never differs much from the blocks before it: so the newest eight are also compared
with the fastest eight in a row that the job ever had. Steps that
do more work (longer sequences, larger batches) may take longer: where the work is known, the time per sample or token
must have risen too.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Final, Literal

ChangeKind = Literal["slower", "late_rank", "data", "memory"]

BLOCK_STEPS: Final = 8
_BLOCK_NS: Final = 8_000_000_000
_FEWEST_BLOCKS: Final = 3
"""Blocks that must be known before a later one is judged."""
_MOST_BLOCKS: Final = 64
_SMALLEST_RISE: Final = 0.10
"""Rises below this share are left alone: nobody would get up for them."""
_FAR, _FAR_BLOCKS = 6.0, 2
_SOME, _SOME_BLOCKS = 4.0, 4
"""Deviations above the usual time, and how many blocks in a row must be as far off."""
_CREEP_BLOCKS: Final = 8
"""Blocks in a row that are compared with the fastest ones in a row: their median hides a slow block or three."""
_SMALLEST_DEVIATION: Final = 0.01
"""Blocks of a very even job vary by this share at least."""
_FROM_MAD: Final = 1.4826
_MEDIAN_SPREAD: Final = 1.2533
"""Standard deviation of a median over that of a mean."""
_MOST_OF_IT: Final = 0.5
"""A cause explains a change if it rose by this share of it."""
_GROWING_BLOCKS: Final = 8
_GROWTH_OF_BLOCK: Final = 0.01
_GROWTH: Final = 0.20
"""Memory grows if each of the last blocks exceeds the one before by a hundredth of the memory at the beginning, and
all of it by a fifth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedStep:
    """What is compared of one step of all ranks; times in ns."""

    step: int
    time: int
    data: int | None = None
    """Time spent waiting for data on the rank that waits longest."""
    starved: tuple[int, int] | None = None
    """The rank that waits longest for data, and how much longer than any other; None with one rank, or if unknown."""
    memory: int | None = None
    """Highest peak of any rank."""
    work: int | None = None
    """Samples or tokens; 0 and None if unknown."""
    late: tuple[int, int] | None = None
    """The rank that is last to enqueue, and how late it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    kind: ChangeKind
    step: int
    """About the first step that differs."""
    before: float
    after: float
    """Step time in ns, or bytes."""
    rank: int | None = None

    @property
    def rise(self) -> float:
        return self.after / self.before - 1


@dataclass(frozen=True, slots=True)
class _StepBlock:
    steps: tuple[ComparedStep, ...]

    @property
    def time(self) -> float:
        return median(step.time for step in self.steps)

    @property
    def spread(self) -> float:
        """Standard deviation of the block's median, from the deviations of its steps."""
        middle = self.time
        deviation = _FROM_MAD * median(abs(step.time - middle) for step in self.steps)
        return _MEDIAN_SPREAD * deviation / sqrt(len(self.steps))

    @property
    def time_per_work(self) -> float | None:
        return median(step.time / step.work for step in self.steps if step.work) if self._has("work") else None

    @property
    def data(self) -> float | None:
        return median(step.data for step in self.steps if step.data is not None) if self._has("data") else None

    @property
    def memory(self) -> int | None:
        return max((step.memory for step in self.steps if step.memory), default=None)

    def _has(self, name: str) -> bool:
        values = [getattr(step, name) for step in self.steps]
        return None not in values and (name != "work" or 0 not in values)


@dataclass(slots=True)
class ChangeFinder:
    """Takes the steps of one attempt in their order, without those that were compiled, profiled or skipped."""

    _open: list[ComparedStep] = field(default_factory=list)
    _open_ns: int = 0
    _usual: deque[_StepBlock] = field(default_factory=lambda: deque(maxlen=_MOST_BLOCKS))
    _slow: list[_StepBlock] = field(default_factory=list)
    """Blocks in a row, up to the newest, that are slow."""
    _fast: list[_StepBlock] = field(default_factory=list)
    _newest: deque[_StepBlock] = field(default_factory=lambda: deque(maxlen=_CREEP_BLOCKS))
    _fastest: tuple[_StepBlock, ...] = ()
    """The fastest blocks in a row since the last change: a reference that does not follow a job that creeps."""
    _memory: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_GROWING_BLOCKS + 1))
    """First step and memory of the last blocks."""
    _first_memory: int | None = None

    def take(self, step: ComparedStep) -> JobChange | None:
        """Take one more step, and return the change that it completes, if any."""
        self._open.append(step)
        self._open_ns += step.time
        if len(self._open) < BLOCK_STEPS or self._open_ns < _BLOCK_NS:
            return None
        block = _StepBlock(tuple(self._open))
        self._open, self._open_ns = [], 0
        return self._judge(block) or self._judge_creep(block) or self._judge_memory(block)

    @property
    def usual_time(self) -> float | None:
        """Median time of the blocks that steps are compared with, in ns; None if there are too few."""
        return median(block.time for block in self._usual) if len(self._usual) >= _FEWEST_BLOCKS else None

    def _judge(self, block: _StepBlock) -> JobChange | None:
        usual = self.usual_time
        if not usual:
            self._usual.append(block)
            return None
        deviation = _deviation(self._usual, usual)
        rise = block.time - usual
        if rise >= _SMALLEST_RISE * usual and rise >= _SOME * deviation and not self._does_more(block, self._usual):
            self._slow.append(block)
            self._fast.clear()
            return self._change(usual, deviation)
        self._usual.extend(self._slow)
        self._slow.clear()
        if -rise >= _SMALLEST_RISE * usual and -rise >= _SOME * deviation:
            self._fast.append(block)
            if len(self._fast) >= _SOME_BLOCKS:  # a faster job is the new usual one
                self._begin_with(self._fast)
            return None
        self._usual.extend([*self._fast, block])
        self._fast.clear()
        return None

    def _judge_creep(self, block: _StepBlock) -> JobChange | None:
        """Compare the newest blocks with the fastest ones."""
        self._newest.append(block)
        newest = tuple(self._newest)
        if len(newest) < _CREEP_BLOCKS:
            return None
        now, before = _time_of(newest), _time_of(self._fastest)
        if not self._fastest or now < before:
            self._fastest = newest
            return None
        rise, deviation = now - before, max(_deviation(self._fastest, before), _deviation(newest, now))
        is_slow = rise >= _SMALLEST_RISE * before and rise >= _SOME * deviation
        if not is_slow or all(self._does_more(one, self._fastest) for one in newest):
            return None
        kind, rank = self._cause(rise, newest, self._fastest)
        change = JobChange(kind=kind, step=newest[0].steps[0].step, before=before, after=now, rank=rank)
        self._begin_with(newest)
        return change

    def _does_more(self, block: _StepBlock, usual: Iterable[_StepBlock]) -> bool:
        """Return whether the block is slower only because its steps do more work."""
        known = [one.time_per_work for one in usual]
        now, before = block.time_per_work, [value for value in known if value is not None]
        if now is None or len(before) < len(known):
            return False
        return now < (1 + _SMALLEST_RISE) * median(before)

    def _change(self, usual: float, deviation: float) -> JobChange | None:
        far = [block for block in self._slow[-_FAR_BLOCKS:] if block.time - usual >= _FAR * deviation]
        if len(far) < _FAR_BLOCKS and len(self._slow) < _SOME_BLOCKS:
            return None
        after = median(block.time for block in self._slow)
        kind, rank = self._cause(after - usual, self._slow, self._usual)
        change = JobChange(kind=kind, step=self._first_slow(usual, after), before=usual, after=after, rank=rank)
        self._begin_with(self._slow)
        return change

    def _cause(
        self, rise: float, slow: Sequence[_StepBlock], usual: Iterable[_StepBlock]
    ) -> tuple[ChangeKind, int | None]:
        before = list(usual)
        waits, usual_wait = _median_of([block.data for block in slow]), _median_of([block.data for block in before])
        if waits is not None and usual_wait is not None and waits - usual_wait >= _MOST_OF_IT * rise:
            return "data", _starved_rank(rise, slow, before)
        late = slow[-1].steps[-1].late
        if late is not None and late[1] - _usual_lateness(late[0], before) >= _MOST_OF_IT * rise:
            return "late_rank", late[0]
        return "slower", None

    def _first_slow(self, usual: float, after: float) -> int:
        """Return the step from which on most steps are slow: the change lies within or just before the first block."""
        steps = [step for block in (self._usual[-1], self._slow[0]) for step in block.steps]
        limit = (usual + after) / 2
        first = len(steps)
        while first > 0 and steps[first - 1].time > limit:
            first -= 1
        return steps[first].step if first < len(steps) else self._slow[0].steps[0].step

    def _begin_with(self, blocks: Sequence[_StepBlock]) -> None:
        known = list(blocks)
        self._usual.clear()
        self._slow.clear()
        self._fast.clear()
        self._newest.clear()
        self._fastest = ()
        self._usual.extend(known)

    def _judge_memory(self, block: _StepBlock) -> JobChange | None:
        if block.memory is None:
            return None
        if not self._first_memory:
            if self.usual_time is not None:  # the first blocks fill caches
                self._first_memory = block.memory
            return None
        self._memory.append((block.steps[0].step, block.memory))
        first, values = self._first_memory, [memory for _, memory in self._memory]
        rises = [later - earlier for earlier, later in pairwise(values)]
        is_steady = len(rises) == _GROWING_BLOCKS and min(rises) >= _GROWTH_OF_BLOCK * first
        if not is_steady or values[-1] < (1 + _GROWTH) * first:
            return None
        change = JobChange(kind="memory", step=self._memory[0][0], before=first, after=values[-1])
        self._memory.clear()
        self._first_memory = values[-1]
        return change


def _time_of(blocks: Sequence[_StepBlock]) -> float:
    return median(block.time for block in blocks) if blocks else 0.0


def _deviation(blocks: Collection[_StepBlock], usual: float) -> float:
    between = _FROM_MAD * median(abs(block.time - usual) for block in blocks)
    return max(between, median(block.spread for block in blocks), _SMALLEST_DEVIATION * usual)


def _starved_rank(rise: float, slow: Sequence[_StepBlock], usual: Sequence[_StepBlock]) -> int | None:
    """Return the rank whose own wait for data explains the rise; None if several wait."""
    now, before = _waits_alone(slow), _waits_alone(usual)
    rank = max(now, key=now.__getitem__, default=None)
    return rank if rank is not None and now[rank] - before.get(rank, 0) >= _MOST_OF_IT * rise else None


def _usual_lateness(rank: int, usual: Sequence[_StepBlock]) -> float:
    """Return how late the rank was before; 0 if it was not the last."""
    before = [block.steps[-1].late for block in usual]
    return median(late[1] if late is not None and late[0] == rank else 0 for late in before)


def _waits_alone(blocks: Iterable[_StepBlock]) -> dict[int, float]:
    """Return how much longer than any other each rank waits for data, in ns per step."""
    steps = [step for block in blocks for step in block.steps]
    alone: Counter[int] = Counter()
    for step in steps:
        if step.starved is not None:
            alone[step.starved[0]] += step.starved[1]
    return {rank: ns / len(steps) for rank, ns in alone.items()}


def _median_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(values) else None
