"""The batch size in a command, and the same command with another batch size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lostflops.core.errors import UsageError

_NAMES: Final = frozenset({"b", "batch", "bs", "bsz", "mbs", "microbatch", "train_micro_batch_size_per_gpu"})
_ENDINGS: Final = ("batch_size", "batchsize")
_NOT_TRAINING: Final = frozenset({"eval", "evaluation", "val", "valid", "validation", "test", "infer", "inference"})
_HOW: Final = "Name it with --argument NAME, or with --variable NAME if it is an environment variable."


@dataclass(frozen=True, slots=True)
class BatchArgument:
    """The batch size in a command."""

    name: str
    """Name of the argument as the user writes it."""
    place: int
    """Index of the word that has the size."""
    before: str
    """Text of that word before the size."""
    size: int

    def replace_batch_size(self, words: Sequence[str], size: int) -> list[str]:
        """Return the command with another batch size.

        >>> BatchArgument("--bs", 1, "--bs=", 32).replace_batch_size(["train", "--bs=32"], 64)
        ['train', '--bs=64']
        """
        return [*words[: self.place], f"{self.before}{size}", *words[self.place + 1 :]]


def batch_argument(words: Sequence[str], name: str | None = None) -> BatchArgument:
    """Find the only argument that is a batch size, or the one of that name. Raise `UsageError` if there is none, or
    several.

    >>> batch_argument(["python", "train.py", "--batch-size", "32"])
    BatchArgument(name='--batch-size', place=3, before='', size=32)
    >>> batch_argument(["python", "train.py", "data.batch_size=8", "eval.batch_size=64"]).name
    'data.batch_size'
    """
    wanted = None if name is None else _plain(name)
    found = [one for one in _numbers(words) if (_plain(one.name) == wanted if name else _is_batch_size(one.name))]
    if len(found) == 1:
        return found[0]
    if name is not None:
        others = ", ".join(one.name for one in _numbers(words)) or "none"
        count = "several times" if found else "nowhere"
        raise UsageError(
            f"{name} appears {count} in the command with a whole number; arguments with a whole number: {others}."
        )
    if not found:
        raise UsageError(f"no argument of the command looks like a batch size, such as --batch-size 32. {_HOW}")
    named = ", ".join(f"{one.name} ({one.size})" for one in found)
    raise UsageError(f"several arguments may be the batch size: {named}. {_HOW}")


def _numbers(words: Sequence[str]) -> Iterator[BatchArgument]:
    """Yield arguments with a positive whole number: `--name 3`, `--name=3`, `-b3`, `name=3`, `+name=3`."""
    for place, word in enumerate(words[1:], 1):
        joined = re.fullmatch(r"((--?|\+{1,2})?([A-Za-z_][\w.\-/]*)=)([1-9]\d*)", word)
        if joined:
            yield BatchArgument(joined[1].lstrip("+")[:-1], place, joined[1], int(joined[4]))
        elif short := re.fullmatch(r"(-[A-Za-z])([1-9]\d*)", word):
            yield BatchArgument(short[1], place, short[1], int(short[2]))
        elif re.fullmatch(r"--?[A-Za-z][\w.\-]*", words[place - 1]) and re.fullmatch(r"[1-9]\d*", word):
            yield BatchArgument(words[place - 1], place, "", int(word))


def _plain(name: str) -> str:
    return name.lstrip("-+").casefold().replace("-", "_")


def _is_batch_size(name: str) -> bool:
    """Return whether an argument of this name is the batch size of training.

    >>> [_is_batch_size(name) for name in ("--per_device_train_batch_size", "-b", "--eval-batch-size", "--batches")]
    [True, True, False, False]
    """
    plain = _plain(name)
    last = re.split(r"[./]", plain)[-1]
    parts = set(re.split(r"[./_]", plain))
    return (last in _NAMES or last.endswith(_ENDINGS)) and not parts & _NOT_TRAINING
