"""A worker process: orders on standard input, answers on standard output, one JSON text per line.

`processes` runs it; it ends when its standard input closes, so it never outlives the process that started it.
"""

import os
import queue
import sys
import threading
import traceback
from typing import BinaryIO

import msgspec

from lostflops.store.spread.work import WorkAnswer, carried_out


def main() -> None:
    orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, orders), daemon=True).start()
    while True:
        order = orders.get()
        try:
            _send(carried_out(order, lambda count: _send(WorkAnswer(read=count))))
        except BaseException:  # noqa: BLE001 - a bug: show it, and end without waiting for the reading thread
            traceback.print_exc()
            os._exit(1)


def _receive(lines: BinaryIO, orders: "queue.SimpleQueue[bytes]") -> None:
    for line in lines:
        orders.put(line)
    os._exit(0)


def _send(answer: WorkAnswer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()
