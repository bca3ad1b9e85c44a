"""SQL of the page, in a process of its own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from lostflops.core.results import Page
from lostflops.show.serve.packing import pack_page
from lostflops.show.serve.queries import run_query
from lostflops.show.serve.served_run import OpenedRun
from lostflops.show.serve.user_questions import UserQuestion, make_question_work

_COUNTED_SHARE: Final = 0.8
"""Share of the memory limit that DuckDB may allocate by its own count, which ends a query with an error. The rest is
for Python, libraries and long strings, which DuckDB does not count."""


class SqlQuestion(UserQuestion, frozen=True, kw_only=True):
    query: str


def _answer(question: SqlQuestion) -> bytes:
    with _open_run(question.run, question.most_bytes).beside() as run:
        return pack_page(Page("", (run_query(run, question.query, question.most_bytes),), {}))


@cache
def _open_run(path: str, most_bytes: int) -> OpenedRun:
    limits: dict[str, str | bool | int] = {
        "memory_limit": f"{int(_COUNTED_SHARE * most_bytes)}B",
        "temp_directory": "",  # nothing spills to disk
        "python_enable_replacements": False,
    }
    return OpenedRun(Path(path), limits)


WORK: Final = make_question_work("sql", SqlQuestion, _answer)
