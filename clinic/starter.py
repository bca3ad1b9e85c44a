"""Start jobs from a process that has imported torch: a timing then takes its steps, not the import of every rank.

It reads a job a line from its standard input, and answers each with an exit code. `clinic.record` runs it.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed.fsdp
import torch.nn.parallel
import torch.utils.data
from torch.optim.optimizer import register_optimizer_step_post_hook

from clinic.record import GRACE, PATIENCE, STEP_TIMES

_POLL: Final = 0.02
"""Seconds between looks at the ranks."""


def serve() -> None:
    for line in sys.stdin:
        print(_run(json.loads(line)), flush=True)


def _run(job: dict[str, Any]) -> int:
    port = _free_port()
    ranks = {_start(rank, port, job) for rank in range(job["ranks"])}
    left, code, deadline = set(ranks), 0, time.monotonic() + PATIENCE
    while left and not code:
        for rank in tuple(left):
            ended, status = os.waitpid(rank, os.WNOHANG)
            if ended:
                left.discard(rank)
                code = code or os.waitstatus_to_exitcode(status)
        if is_timed := Path(job["times"]).exists():
            # PyTorch may hang after the last step: gloo's destructor waits, with the GIL, for a thread that needs it.
            deadline = min(deadline, time.monotonic() + GRACE)
        if time.monotonic() > deadline:
            code = 0 if is_timed else signal.SIGALRM
            break
        time.sleep(_POLL)
    for rank in ranks:
        _kill_group(rank)
    for rank in left:
        os.waitpid(rank, 0)
    return int(code)


def _kill_group(rank: int) -> None:
    """End a rank and what it started, such as the workers of its loader."""
    with suppress(ProcessLookupError):
        os.killpg(rank, signal.SIGKILL)


def _start(rank: int, port: int, job: dict[str, Any]) -> int:
    child = os.fork()
    if not child:
        os._exit(_be_rank(rank, port, job))
    return child


def _be_rank(rank: int, port: int, job: dict[str, Any]) -> int:
    code = 1
    try:
        os.setsid()
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        _run_script(rank, port, job)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 (a rank that has been forked must not go on as the starter)
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _run_script(rank: int, port: int, job: dict[str, Any]) -> None:
    places = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": job["ranks"]}
    places |= {"LOCAL_WORLD_SIZE": job["ranks"], "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    if job["ranks"] > 1:
        os.environ.update({name: str(value) for name, value in places.items()})
    os.environ[STEP_TIMES] = job["times"]
    ends: list[float] = []
    register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter()))
    script = job["words"][0]
    sys.argv = job["words"]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")
    times = Path(job["times"])
    if rank == 0 and not times.exists() and len(ends) > 1:
        seconds = [after - before for before, after in pairwise(ends)]
        times.write_text(json.dumps({"seconds": seconds, "samples": 1}), encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve()
