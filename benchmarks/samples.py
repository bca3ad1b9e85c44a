"""How well stack samples tell where time went: by counting them, and by the time since the sample before.

    python benchmarks/samples.py

Three functions with known times are sampled from another thread, as the collector does: one holds the interpreter's
lock inside C, one is a Python loop, one lets go of the lock.
"""

from __future__ import annotations

import json
import platform
import sys
import threading
import time
from collections import Counter
from types import FrameType

ROUNDS = 40
PERIOD = 0.010
NUMBERS = list(range(600_000))


def holds_the_lock() -> None:
    json.dumps(NUMBERS)


def loops() -> None:
    for _ in range(800_000):
        pass


def lets_go() -> None:
    time.sleep(0.02)


FUNCTIONS = (holds_the_lock, loops, lets_go)
NAMES = {function.__name__ for function in FUNCTIONS}


def main() -> None:
    samples: list[tuple[int, str]] = []
    stop = threading.Event()
    sampler = threading.Thread(target=_sample, args=(threading.get_ident(), samples, stop))
    sampler.start()
    begin, true = time.perf_counter_ns(), Counter[str]()
    for _ in range(ROUNDS):
        for function in FUNCTIONS:
            before = time.perf_counter_ns()
            function()
            true[function.__name__] += time.perf_counter_ns() - before
    stop.set()
    sampler.join()
    counted, weighed = Counter[str](), Counter[str]()
    for when, name in samples:
        counted[name] += 1
        weighed[name] += when - begin
        begin = when
    print(f"{len(samples)} samples, CPython {platform.python_version()}")
    print(f"{'':16}{'true':>8}{'counted':>9}{'by time':>9}")
    for name in true:
        shares = (sums[name] / sum(sums[other] for other in NAMES) for sums in (true, counted, weighed))
        print(f"{name:16}" + "".join(f"{share:>8.1%} " for share in shares))


def _sample(thread: int, samples: list[tuple[int, str]], stop: threading.Event) -> None:
    while not stop.wait(PERIOD):
        name = _known(sys._current_frames().get(thread))  # noqa: SLF001 - how a sampler looks
        if name:
            samples.append((time.perf_counter_ns(), name))


def _known(frame: FrameType | None) -> str:
    while frame is not None and frame.f_code.co_name not in NAMES:
        frame = frame.f_back
    return frame.f_code.co_name if frame else ""


if __name__ == "__main__":
    main()
