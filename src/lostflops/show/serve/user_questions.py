"""Questions that a user writes, answered in a worker process that may be killed at any time.

The process keeps what it has opened between questions, so only the first question waits for that.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from lostflops.core.errors import LostflopsError, QueryError
from lostflops.show.serve.limits import explain_memory_limit
from lostflops.store.spread.work import Work

_NICE: Final = 10
"""Lower priority than the server, which then answers the page however busy these processes are."""


class UserQuestion(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    """Folder of the run."""
    most_bytes: int
    """Memory that the process may use."""


Q = TypeVar("Q", bound=UserQuestion)
QuestionWork = Work[Q, msgspec.Raw]
"""Its result is the JSON that the page gets."""


def make_question_work(name: str, question_type: type[Q], answer: Callable[[Q], bytes]) -> QuestionWork[Q]:
    def do(question: Q, _: object) -> msgspec.Raw:
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
        try:
            return msgspec.Raw(answer(question))
        except LostflopsError:
            raise
        except MemoryError:
            raise QueryError(explain_memory_limit(question.most_bytes)) from None
        except Exception:  # noqa: BLE001 - a bug is shown where it can be reported, and not to the page
            traceback.print_exc()
            os._exit(1)

    return Work(name, question_type, msgspec.Raw, do, lambda question: question.run)
