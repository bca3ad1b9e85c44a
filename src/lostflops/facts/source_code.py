"""Whose code a stack frame is, told by its file: the program's, PyTorch's, another library's or the collector's."""

import re
from typing import Final

PROGRAM: Final = "program"
CODES: Final = (PROGRAM, "torch", "library", "lostflops")
_RULES: Final = (
    ("lostflops", re.compile(r"(?:^|-packages/|/src/)lostflops/")),
    ("torch", re.compile(r"(?:^|-packages/|/pytorch/)(?:torch|functorch)/")),
    ("library", re.compile(r"/(?:site|dist)-packages/|(?:^|/)python\d[\d.]*/|^<frozen ")),
)


def code_of(frame: str) -> str:
    """Of a frame such as `function file.py:12`.

    >>> code_of("load /home/me/torch/data.py:3"), code_of("step /venv/site-packages/torch/optim/adam.py:9")
    ('program', 'torch')
    >>> code_of("dumps /usr/lib/python3.13/json/__init__.py:231"), code_of("<module> <frozen runpy>:88")
    ('library', 'library')
    """
    place = place_of(frame)
    return next((code for code, pattern in _RULES if pattern.search(place)), PROGRAM)


def function_of(frame: str) -> str:
    return frame.partition(" ")[0]


def place_of(frame: str) -> str:
    """File and line.

    >>> place_of("load my data.py:3")
    'my data.py:3'
    """
    return frame.partition(" ")[2]
