"""Origin of a stack frame by its file: the program, PyTorch, another library or the collector."""

import re
import sys
from typing import Final

PROGRAM: Final = "program"
CODES: Final = (PROGRAM, "torch", "library", "lostflops")
_RULES: Final = (
    ("lostflops", re.compile(r"(?:^|-packages/|/src/)lostflops/")),
    # Inductor's output has names such as cdjulsjz...x.py, in its cache.
    ("torch", re.compile(r"(?:^|-packages/|/pytorch/)(?:torch|functorch)/|torchinductor|(?:^|/)c[a-z2-7]{50,}\.py")),
    ("library", re.compile(r"(?:^|/)(?:site|dist)-packages/|(?:^|/)python\d[\d.]*/|^<frozen[ _]")),
)
_STANDARD: Final = re.compile(r"(?:^|/)python\d[\d.]*/(?!(?:site|dist)-packages/)|^<frozen[ _]")
_ENGINE: Final = re.compile(r"(?:^|/)(?:deepspeed|megatron|torchtitan)/")
_LIBRARIES: Final = sys.stdlib_module_names | {
    *("PIL", "accelerate", "deepspeed", "megatron", "numpy", "pandas", "pytorch_lightning", "scipy", "tensorboard"),
    *("torchaudio", "torchtitan", "torchvision", "tqdm", "transformers", "triton", "wandb"),
}
"""First parts of paths that were cut at an entry of `sys.path`; a library not listed here looks like the program."""


def code_of(frame: str) -> str:
    """Return whose code a frame such as `function file.py:12` is.

    >>> code_of("load /home/me/torch/data.py:3"), code_of("step /venv/site-packages/torch/optim/adam.py:9")
    ('program', 'torch')
    >>> code_of("dumps json/__init__.py:231"), code_of("run threading.py:9"), code_of("<module> <frozen_runpy>:88")
    ('library', 'library', 'library')
    """
    place = place_of(frame)
    first = place.partition("/")[0].partition(".py:")[0]
    return next(
        (code for code, pattern in _RULES if pattern.search(place)), "library" if first in _LIBRARIES else PROGRAM
    )


def is_framework(frame: str) -> bool:
    """Return whether a frame belongs to an installed library other than PyTorch.

    >>> is_framework("save transformers/trainer.py:9"), is_framework("dumps json/__init__.py:231")
    (True, False)
    >>> is_framework("save torch/serialization.py:9"), is_framework("main train.py:3")
    (False, False)
    """
    first = place_of(frame).partition("/")[0].partition(".py:")[0]
    is_standard = first in sys.stdlib_module_names or _STANDARD.search(place_of(frame)) is not None
    return code_of(frame) == "library" and not is_standard


def is_engine(frame: str) -> bool:
    """Return whether a frame belongs to a framework that runs the passes of a step itself.

    >>> is_engine("backward site-packages/deepspeed/runtime/engine.py:2"), is_engine("main deepspeed_job.py:3")
    (True, False)
    """
    return _ENGINE.search(place_of(frame)) is not None


def own_frame(stack: str) -> str:
    """Return the innermost frame of the program in a stack; else the innermost of all; empty without a stack.

    >>> own_frame("<module> train.py:40;step train.py:31;linear torch/nn/functional.py:9")
    'step train.py:31'
    """
    frames = stack.split(";")
    return next((frame for frame in reversed(frames) if code_of(frame) == PROGRAM), frames[-1])


def function_of(frame: str) -> str:
    return frame.partition(" ")[0]


def place_of(frame: str) -> str:
    """Return file and line of a frame.

    >>> place_of("load my data.py:3")
    'my data.py:3'
    """
    return frame.partition(" ")[2]
