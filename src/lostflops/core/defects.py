"""Words for an error that Lostflops did not expect: its type, its message and where it was raised."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

_LONGEST: Final = 300
PLEASE_REPORT: Final = "this is a defect of Lostflops, please report it"


def describe_defect(error: BaseException) -> str:
    """Return one line about an unexpected error, and that it should be reported.

    >>> describe_defect(OverflowError("too large"))
    'OverflowError: too large; this is a defect of Lostflops, please report it'
    >>> describe_defect(MemoryError())
    'there is not enough memory to read it (MemoryError)'
    """
    name = type(error).__name__
    if isinstance(error, MemoryError):
        return f"there is not enough memory to read it ({name})"
    message = " ".join(str(error).split())[:_LONGEST]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (raised in {Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{name}: {message or 'no message'}{where}; {PLEASE_REPORT}"
