"""What-ifs of the page, in a process of its own, which keeps the replay of the unchanged run."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from lostflops.predict.whatif.baseline import Baseline, baseline
from lostflops.show.pages.knob_positions import try_changes
from lostflops.show.serve.served_run import OpenedRun
from lostflops.show.serve.user_questions import UserQuestion, make_question_work


class WhatIfQuestion(UserQuestion, frozen=True, kw_only=True):
    changes: tuple[tuple[str, str], ...]


def _answer(question: WhatIfQuestion) -> bytes:
    opened = _open_run(question.run)
    opened.refresh()
    setting = try_changes(_replay(question.run, opened.identity), question.changes)
    return json.dumps(asdict(setting), allow_nan=False).encode()


@cache
def _open_run(path: str) -> OpenedRun:
    return OpenedRun(Path(path))


@lru_cache(maxsize=1)
def _replay(path: str, _identity: str) -> Baseline:
    return baseline(_open_run(path).beside())  # the connection stays open: a change may ask for more facts


WORK: Final = make_question_work("whatif", WhatIfQuestion, _answer)
