"""A worker process: tasks in on standard input, outcomes out on standard output, one JSON text a line.

Run by `pool`; it ends when its standard input closes, so it never outlives the process that started it.
"""

import os
import queue
import sys
import threading
import traceback
from typing import BinaryIO

import duckdb
import msgspec

from lostflops.errors import LostflopsError, RunError, SourceError
from lostflops.ingest.tasks import Outcome, Task, carry_out
from lostflops.store.parquet import ParquetWriter


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Bytes read so far in this task, or how the task ended."""

    read: int = 0
    outcome: Outcome | None = None
    error: str | None = None
    error_type: str = ""


def main() -> None:
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, tasks), daemon=True).start()
    writer = ParquetWriter()
    while True:
        task = tasks.get()
        try:
            _send(Message(outcome=carry_out(task, writer, lambda count: _send(Message(read=count)))))
        except LostflopsError as error:
            _send(Message(error=str(error), error_type=type(error).__name__))
        except OSError as error:
            _send(Message(error=str(error), error_type=SourceError.__name__))
        except duckdb.Error as error:
            _send(Message(error=f"{task.staging} cannot be written: {error}", error_type=RunError.__name__))
        except BaseException:  # noqa: BLE001 - a bug: show it, and end without waiting for the reading thread
            traceback.print_exc()
            os._exit(1)


def _receive(lines: BinaryIO, tasks: "queue.SimpleQueue[Task]") -> None:
    for line in lines:
        tasks.put(msgspec.json.decode(line, type=Task))
    os._exit(0)


def _send(message: Message) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()
