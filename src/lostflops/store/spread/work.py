"""Work that can be done elsewhere: its name, input and result. Only plain values are sent, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Generic, Protocol, TypeVar

import duckdb
import msgspec

from lostflops.core import errors
from lostflops.core.defects import describe_defect
from lostflops.core.errors import BrokenSource, LostflopsError, RunError, SourceError

T = TypeVar("T")
R = TypeVar("R")
OnRead = Callable[[int], None]
"""Called with the number of bytes that were read."""

_MODULES: Final = {
    "ingest": "lostflops.ingest.tasks",
    "by_rank": "lostflops.account.ledger.by_rank",
    "derive": "lostflops.account.derive.tasks",
    "sql": "lostflops.show.serve.sql_question",
    "whatif": "lostflops.show.serve.whatif_question",
}
"""Module that declares each work, as `WORK`: a message cannot ask for anything else."""


@dataclass(frozen=True, slots=True)
class Work(Generic[T, R]):
    """Work that can be done elsewhere."""

    name: str
    takes: type[T]
    gives: type[R]
    do: Callable[[T, OnRead], R]
    """Must be repeatable: doing it again overwrites everything that the first try left."""
    about: Callable[[T], str]
    """Names an item in an error."""
    refuse: Callable[[T, BrokenSource], R] | None = None
    """Returns the result of an item over which workers died, or raises; None if such an item ends all work."""


class Engine(Protocol):
    """Runs work on items, in processes of this machine or on a cluster."""

    def map(self, work: Work[T, R], items: Sequence[T], on_read: OnRead, on_done: Callable[[T], None]) -> list[R]:
        """Return results in the order of the items.

        The first error ends everything and is raised; another worker repeats an item whose worker died.
        """


class Order(msgspec.Struct):
    work: str
    item: msgspec.Raw


_NOTHING: Final = msgspec.Raw(b"")


class WorkAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Bytes read so far, or how the work ended."""

    read: int = 0
    result: msgspec.Raw = _NOTHING
    error: str | None = None
    error_type: str = ""


def encode_order(work: Work[T, Any], item: T) -> bytes:
    return msgspec.json.encode(Order(work.name, msgspec.Raw(msgspec.json.encode(item))))


def carried_out(order: bytes, on_read: OnRead) -> WorkAnswer:
    """Carry out an order in a worker; an error that is not ours is a defect, and the answer says so."""
    asked = msgspec.json.decode(order, type=Order)
    work: Work[Any, Any] = import_module(_MODULES[asked.work]).WORK
    item = msgspec.json.decode(asked.item, type=work.takes)
    try:
        return WorkAnswer(result=msgspec.Raw(msgspec.json.encode(work.do(item, on_read))))
    except Exception as error:  # noqa: BLE001 - a worker that dies would not say why
        ours = _ours(error)
        # An error that another room defines is raised as the one that it is a kind of.
        known = next(kind for kind in type(ours).__mro__ if kind.__module__ == errors.__name__)
        return WorkAnswer(error=str(ours), error_type=known.__name__)


def _ours(error: Exception) -> LostflopsError:
    if isinstance(error, LostflopsError):
        return error
    if isinstance(error, OSError):
        return SourceError(str(error))
    if isinstance(error, duckdb.Error):
        return RunError(f"a worker failed: {error}")
    return RunError(f"a worker failed: {describe_defect(error)}.")


def result_of(work: Work[Any, R], answer: WorkAnswer) -> R:
    """Return the result of an answer, or raise the error that was raised there."""
    if answer.error is not None:
        raise getattr(errors, answer.error_type)(answer.error)
    assert answer.result, "a worker ended its work without a word"
    return msgspec.json.decode(answer.result, type=work.gives)
