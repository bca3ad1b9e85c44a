"""Stacks of any Result as folded text, a line each with its time in ns: what other tools for flame graphs read."""

from typing import TextIO

from lostflops.core.results import Result, Stacks


def write(result: Result, stream: TextIO) -> None:
    for block in (*result.blocks, *result.more):
        if isinstance(block, Stacks):
            stream.writelines(f"{_fold_frames(frames)} {ns}\n" for frames, _, ns in block.items)


def _fold_frames(frames: tuple[str, ...]) -> str:
    """
    >>> _fold_frames(("main train.py:3", "load\\tdata.py:12"))
    'main train.py:3;load data.py:12'
    """
    return ";".join(" ".join(frame.split()) for frame in frames)
