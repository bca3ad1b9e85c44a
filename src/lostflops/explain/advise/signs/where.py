"""Source lines where a host spent the time of a ledger line, from stack samples of the training threads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.source_code import (
    PROGRAM,
    code_of,
    function_of,
    is_engine,
    is_framework,
    place_of,
)
from lostflops.account.ledger.samples import FEWEST

if TYPE_CHECKING:
    from lostflops.account.ledger.total import RunLedger

MOST_PLACES: Final = 3

_FOR_PEOPLE: Final = re.compile(r"(?:^|[ /])torch/(?:utils/tensorboard/|_tensor_str\.py)")

_PHASES: Final = (
    re.compile(r"(?:^|[ /])torch/nn/modules/module\.py:"),
    re.compile(r"(?:^|\.)(?:backward|grad) (?:\S*/)?torch/(?:_tensor|autograd/__init__)\.py:"),
    re.compile(r"(?:^|[ /])torch/optim/"),
)
"""Frames of the forward pass, the backward pass and the optimizer."""
FORWARD, BACKWARD, OPTIMIZER = range(3)

Stack = tuple[str, ...]
"""Frames such as `step train.py:12`, the outermost first."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Samples of a ledger line that are of one sort."""

    share: float
    """Their share of the line's sampled time."""
    samples: int
    """Number of these samples."""
    of: int
    """Number of all samples of the line."""
    places: tuple[tuple[str, float], ...]
    """The program's own lines in them with the share of each, the largest first."""

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(place for place, _ in self.places[:MOST_PLACES])


def match_samples(total: RunLedger, line: str, is_of: Callable[[Stack], bool]) -> Seen | None:
    """Return the samples of a line that match; None if it has too few samples."""
    counts, times = total.samples.get(line, Counter()), total.sampled_ns.get(line, Counter())
    of = counts.total()
    if of < FEWEST:
        return None
    whole, own, samples = times.total() or 1, 0, 0
    places: Counter[str] = Counter()
    enclosing = enclosing_frames(stack for stacks in total.samples.values() for stack in stacks)
    for stack, ns in times.items():
        frames = inside_step(tuple(stack.split(";")), enclosing)
        if frames and is_of(frames):
            own += ns
            samples += counts[stack]
            places[name_program_frame(frames)] += ns
    return Seen(own / whole, samples, of, tuple((place, ns / whole) for place, ns in places.most_common()))


def enclosing_frames(stacks: Iterable[str]) -> frozenset[str]:
    """Return the frames below which stacks show more than one phase of a step: they enclose the step, so that nothing
    in them can be moved out of it.

    >>> forward = "run train.py:3;step lib.py:1;f torch/nn/modules/module.py:9"
    >>> sorted(enclosing_frames([forward, "run train.py:3;step torch/optim/sgd.py:2"]))
    ['run train.py:3']
    >>> sorted(enclosing_frames([forward, "run train.py:3;Tensor.backward torch/_tensor.py:2"]))
    ['run train.py:3']
    >>> sorted(enclosing_frames([forward, "run train.py:3;Tensor.__format__ torch/_tensor.py:5"]))
    []
    """
    phases: dict[str, set[int]] = {}
    for stack in stacks:
        above: list[str] = []
        for frame in stack.split(";"):
            if (phase := phase_at(frame)) is not None:
                for outer in above:
                    phases.setdefault(outer, set()).add(phase)
                break
            above.append(frame)
    return frozenset(frame for frame, seen in phases.items() if len(seen) > 1)


def phase_at(frame: str) -> int | None:
    """Return the phase of a step that begins with a frame: `FORWARD`, `BACKWARD` or `OPTIMIZER`; None if none does."""
    return next((phase for phase, of in enumerate(_PHASES) if of.search(frame)), None)


def inside_step(frames: Stack, enclosing: Collection[str]) -> Stack:
    """Return the frames inside the step: those after the last one that encloses it, if any."""
    last = max((at for at, frame in enumerate(frames) if frame in enclosing), default=-1)
    return frames[last + 1 :]


def has_frame(pattern: re.Pattern[str]) -> Callable[[Stack], bool]:
    """Return a test whether a frame of a stack matches, from its beginning."""
    return lambda frames: any(pattern.match(frame) for frame in frames)


def is_own(frames: Stack) -> bool:
    """Return whether the program itself ran, or a library that it called; code of PyTorch, and of a framework that runs
    the passes, counts only if it prints or logs.

    >>> is_own(("main train.py:3", "log metrics.py:9", "dumps json/__init__.py:231"))
    True
    >>> is_own(("main train.py:3", "Module.__call__ torch/nn/module.py:9"))
    False
    >>> is_own(("main train.py:3", "DeepSpeedEngine.backward deepspeed/runtime/engine.py:9"))
    False
    >>> is_own(("main train.py:3", "Tensor.__repr__ torch/_tensor.py:5", "_str torch/_tensor_str.py:9"))
    True
    """
    codes = [code_of(frame) for frame in frames]
    if PROGRAM not in codes:
        return False
    below = len(codes) - codes[::-1].index(PROGRAM)
    called = frames[below:]
    is_training = bool({"torch", "lostflops"} & set(codes[below:])) or any(map(is_engine, called))
    return not is_training or any(_FOR_PEOPLE.search(frame) for frame in called)


def name_program_frame(frames: Stack) -> str:
    """Return the innermost frame of the program's own code, else that of a framework, else the innermost of all.

    >>> name_program_frame(("main train.py:3", "log metrics.py:9", "dumps json/__init__.py:231"))
    'metrics.py:9: log'
    >>> name_program_frame(("save transformers/trainer.py:9", "save torch/serialization.py:7"))
    'transformers/trainer.py:9: save'
    """
    inner = frames[::-1]
    framework = next((frame for frame in inner if is_framework(frame)), frames[-1])
    frame = next((frame for frame in inner if code_of(frame) == PROGRAM), framework)
    return f"{place_of(frame)}: {function_of(frame)}"
