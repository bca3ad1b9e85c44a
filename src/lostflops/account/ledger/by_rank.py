"""Answers for each rank, computed in this process, or for a large run in several processes or on a cluster.

Answers are small plain values that can be sent; the rows from which they are computed stay where they are.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, get_origin

import msgspec
import numpy as np

from lostflops.account.ledger.record import Record, records
from lostflops.account.ledger.scope import Scope
from lostflops.account.ledger.windows import LedgerWindow, WindowKind, window
from lostflops.core.errors import RunError
from lostflops.store.commit import RANKS_PER_FILE
from lostflops.store.derived import data_digest
from lostflops.store.memory_limit import limit_database
from lostflops.store.spread.engines import ChosenEngine
from lostflops.store.spread.names import EngineName
from lostflops.store.spread.work import OnRead, Work

if TYPE_CHECKING:
    from lostflops.store.run import Run

A = TypeVar("A")
Progress = Callable[[int, int], None]

WORTH: Final = 3_000_000
"""More events than this take longer to account for than workers take to start."""
_AT_ONCE: Final = 2_000
"""Most ranks whose answers are held until they are asked for."""
_TASKS_OF_WORKER: Final = 4
_QUESTIONS: Final = {
    "ledger": "lostflops.account.ledger.accounts",
    "ledger_with_kernels": "lostflops.account.ledger.accounts",
    "profile": "lostflops.account.ledger.profile",
    "kernels": "lostflops.account.ledger.kernel_totals",
    "layers": "lostflops.account.ledger.layers",
}
"""Module that declares each question, in `QUESTIONS`: a message can ask nothing else."""


@dataclass(frozen=True, slots=True)
class Question(Generic[A]):
    """A question that is answered for each rank."""

    name: str
    gives: type[A]
    """Type that msgspec decodes an answer to, after transport."""
    answer: Callable[[Record, LedgerWindow], A]


class RankQuestion(msgspec.Struct, frozen=True):
    """A question about some ranks of a run."""

    question: str
    run: str
    data: str
    """Digest of the data that is asked about: a run may change while its job trains."""
    kind: WindowKind
    ranks: tuple[int, ...]
    steps: tuple[int, ...]


def by_rank(question: Question[A], run: Run, asked: Scope, progress: Progress | None = None) -> Iterator[A]:
    """Yield answers of ranks that recorded any time, in order; `progress` gets the number done and that of all."""
    spread = ChosenEngine.from_environment()
    if _is_worth(run, asked, spread):
        yield from _elsewhere(question, run, asked, spread, progress)
        return
    for done, record in enumerate(records(run, asked.ranks)):
        if progress is not None:
            progress(done, len(asked.ranks))
        yield question.answer(record, window(record, asked.kind, asked.steps))


def _is_worth(run: Run, asked: Scope, spread: ChosenEngine) -> bool:
    if spread.is_single or run.steps or len(asked.ranks) == 1:
        return False
    sizes: dict[int, int | None] = dict(run.rows("select rank, events from ranks"))
    return sum(sizes.get(rank) or 0 for rank in asked.ranks) > WORTH


def _elsewhere(
    question: Question[A], run: Run, asked: Scope, spread: ChosenEngine, progress: Progress | None
) -> Iterator[A]:
    ranks, done = asked.ranks, 0
    size = max(1, min(RANKS_PER_FILE, len(ranks) // (_TASKS_OF_WORKER * spread.workers)))
    # Other machines have no copy of a run that is in a store.
    where = run.address if spread.name is EngineName.RAY else str(run.path)
    parts = [
        RankQuestion(
            question.name, where, data_digest(run.manifest), asked.kind, ranks[first : first + size], asked.steps
        )
        for first in range(0, len(ranks), size)
    ]

    lock = threading.Lock()

    def tell(part: RankQuestion) -> None:
        nonlocal done
        with lock:  # workers are heard by a thread each
            done += len(part.ranks)
            if progress is not None:
                progress(done, len(ranks))

    rounds = max(1, _AT_ONCE // size)
    with spread.engine() as engine:
        for first in range(0, len(parts), rounds):
            for answers in engine.map(WORK, parts[first : first + rounds], lambda _: None, tell):
                yield from msgspec.msgpack.decode(answers, type=list[question.gives], dec_hook=_unpack_value)  # type: ignore[name-defined]


def _answer_question(part: RankQuestion, _: OnRead) -> bytes:
    from lostflops.store.run import Run  # noqa: PLC0415 - of the process that answers

    question: Question[Any] = import_module(_QUESTIONS[part.question]).QUESTIONS[part.question]
    with Run.open(part.run, {"threads": 1, "memory_limit": limit_database(10**9)}) as run:
        if data_digest(run.manifest) != part.data:
            raise RunError(f"{part.run} changed while it was read. Run the command again.")
        asked = Scope(part.kind, part.ranks, part.steps)
        found = [question.answer(one, window(one, asked.kind, asked.steps)) for one in records(run, asked.ranks)]
    return msgspec.msgpack.encode(found, enc_hook=_pack_value)


def _pack_value(value: Any) -> object:
    if isinstance(value, np.ndarray):
        assert value.dtype == np.int64, f"{value.dtype} does not travel"
        return value.shape, value.tobytes()
    raise NotImplementedError(f"{type(value)} does not travel")


def _unpack_value(kind: Any, value: Any) -> object:
    if get_origin(kind) is np.ndarray:
        shape, data = value
        return np.frombuffer(data, np.int64).reshape(shape)
    if get_origin(kind) is Counter:
        return Counter(value)
    raise NotImplementedError(f"{kind} does not travel")


WORK: Final = Work(
    "by_rank", RankQuestion, bytes, _answer_question, about=lambda part: f"{part.run}, rank {part.ranks[0]}"
)
