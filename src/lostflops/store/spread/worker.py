"""A worker process: orders and answers on two pipes that it inherits, one JSON text per line.

`processes` runs it; it ends when the pipe of orders closes, so it never outlives the process that started it.
"""

import os
import queue
import threading
import traceback
from collections.abc import Iterable
from typing import BinaryIO

import msgspec

from lostflops.store.spread.work import WorkAnswer, carried_out


def main(orders_from: int, answers_to: int) -> None:
    for pipe in (orders_from, answers_to):
        os.set_inheritable(pipe, False)  # a process that a library starts must not hold them open
    lines, out = os.fdopen(orders_from, "rb"), os.fdopen(answers_to, "wb")
    orders: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(lines, orders), daemon=True).start()
    while True:
        order = orders.get()
        try:
            _send(out, carried_out(order, lambda count: _send(out, WorkAnswer(read=count))))
        except BaseException:  # noqa: BLE001 - a bug: show it, and end without waiting for the reading thread
            traceback.print_exc()
            os._exit(1)


def _receive(lines: Iterable[bytes], orders: "queue.SimpleQueue[bytes]") -> None:
    for line in lines:
        orders.put(line)
    os._exit(0)


def _send(out: BinaryIO, answer: WorkAnswer) -> None:
    out.write(msgspec.json.encode(answer) + b"\n")
    out.flush()
