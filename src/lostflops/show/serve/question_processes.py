"""Processes that answer questions of users, one each at a time, and are killed if a question takes too much.

A process that is killed is replaced at the next question. All of them end with the server, however that ends: a worker
exits when the pipe of its orders closes.
"""

from __future__ import annotations

import select
import threading
from collections import deque
from contextlib import suppress
from typing import Final, Generic

import msgspec

from lostflops.core.errors import QueryError
from lostflops.show.serve.limits import explain_memory_limit
from lostflops.show.serve.user_questions import Q, QuestionWork
from lostflops.show.serve.work import STOPPED, Stopped, Workers
from lostflops.store.spread.work import WorkAnswer, encode_order, result_of
from lostflops.store.spread.worker_process import WorkerProcess

_WATCH_MS: Final = 20
"""The memory of a busy process is read this often. Linux hands out about 2 GB/s, so it exceeds its limit by 40 MB."""


class QuestionProcesses(Generic[Q]):
    """A few processes for one kind of question, started when they are needed."""

    def __init__(self, work: QuestionWork[Q], processes: int, seconds: float) -> None:
        self._work, self._seconds = work, seconds
        self._threads = Workers(processes)
        self._idle: deque[WorkerProcess] = deque()

    async def answer(self, question: Q) -> bytes:
        """Return the JSON of the answer. Cancelling the caller kills the process."""
        asked = _AskedQuestion(self._work, question, self._idle)
        return await self._threads.answer(asked, _AskedQuestion.answer, self._seconds)

    def close(self) -> bool:
        """Kill all processes; return whether their threads ended."""
        has_ended = self._threads.close()
        while self._idle:
            self._idle.pop().end()
        return has_ended


class _AskedQuestion(Generic[Q]):
    """One question, in the thread that waits for its process."""

    def __init__(self, work: QuestionWork[Q], question: Q, idle: deque[WorkerProcess]) -> None:
        self.stopped = False
        self._work, self._question, self._idle = work, question, idle
        self._process: WorkerProcess | None = None
        self._lock = threading.Lock()

    def answer(self) -> bytes:
        process, is_sound = self._take_process(), False
        try:
            answer = self._exchange(process)
            is_sound = True
        finally:
            self._release_process(process, is_sound)
        return bytes(result_of(self._work, answer))

    def stop(self) -> None:
        """Kill the process if it works on this question."""
        with self._lock:
            self.stopped = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Do nothing: `answer` has released the process."""

    def _take_process(self) -> WorkerProcess:
        with self._lock:
            if self.stopped:
                raise Stopped(STOPPED)
            self._process = self._find_idle_process() or WorkerProcess()
            return self._process

    def _find_idle_process(self) -> WorkerProcess | None:
        with suppress(IndexError):
            while not (process := self._idle.pop()).is_running():
                process.end()
            return process
        return None

    def _release_process(self, process: WorkerProcess, is_sound: bool) -> None:
        with self._lock:
            self._process = None
            is_sound = is_sound and not self.stopped
        if is_sound:
            self._idle.append(process)
        else:
            process.end()

    def _exchange(self, process: WorkerProcess) -> WorkAnswer:
        with suppress(BrokenPipeError):  # reading says how it ended
            process.orders.write(encode_order(self._work, self._question) + b"\n")
            process.orders.flush()
        return msgspec.json.decode(self._read_line(process), type=WorkAnswer)

    def _read_line(self, process: WorkerProcess) -> bytes:
        """Return the answer, and watch the memory of the process until it comes."""
        ready = select.poll()
        ready.register(process.answers, select.POLLIN)
        parts: list[bytes] = []
        while not (parts and parts[-1].endswith(b"\n")):
            if not ready.poll(_WATCH_MS):
                if process.memory() > self._question.most_bytes:
                    raise QueryError(explain_memory_limit(self._question.most_bytes))
                continue
            parts.append(process.answers.read1())
            if not parts[-1]:
                if self.stopped:
                    raise Stopped(STOPPED)
                end = process.describe_end()
                if "out of memory" in end:
                    raise QueryError(f"no answer: its process was {end}. Ask for less")
                raise RuntimeError(f"a process that answers questions ended: {end}")
        return b"".join(parts)
