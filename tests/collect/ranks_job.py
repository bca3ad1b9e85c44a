"""Two ranks, one of which stops in the middle: python ranks_job.py OUT HOW STEP

OUT/found gets what became of both: how the other one ended, and how long it took from its error to its exit. HOW is
`kill`, `stop`, `exit`, or `none` to train to the end; then it tells what was enqueued in the group.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from tests.collect.zoo import loss_of, model

TIMEOUT = timedelta(seconds=8)


def stop(how: str) -> None:
    if how == "exit":
        sys.exit(5)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[how])


def train(out: Path, how: str, last: int, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=2, timeout=TIMEOUT)
    net = torch.nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    batch = torch.ones(8, 8), torch.ones(8, 1)
    step = -1
    try:
        for step in range(40):
            if rank == 1 and step == last and how != "none":
                stop(how)
            optimizer.zero_grad()
            loss_of(net, batch).backward()
            optimizer.step()
        tell(out, rank, {"enqueued": enqueued()})
        # DDP's reducer must not be the last to hold the group: freed under the GIL, it can wait forever for its thread.
        del net
        dist.destroy_process_group()
    except RuntimeError as error:
        tell(out, rank, {"error": type(error).__name__, "step": step, "time": time.time()})
        raise


def enqueued() -> dict[str, int]:
    dump = pickle.loads(c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=False, onlyActive=False))
    return Counter(entry["profiling_name"] for entry in dump["entries"])


def tell(out: Path, rank: int, what: dict[str, Any]) -> None:
    (out / f"rank{rank}").write_text(json.dumps(what))


def fork_rank(out: Path, how: str, last: int, rank: int) -> int:
    child = os.fork()
    if child == 0:
        train(out, how, last, rank)
        sys.exit(0)
    return child


def main(out: Path, how: str, last: int) -> None:
    first, second = (fork_rank(out, how, last, rank) for rank in range(2))
    statuses = [os.waitpid(first, 0)[1]]
    ended = time.time()
    if how == "stop":
        os.kill(second, signal.SIGKILL)
    statuses.append(os.waitpid(second, 0)[1])
    told = json.loads((out / "rank0").read_text())
    leaving = ended - told.pop("time", ended)
    (out / "found").write_text(json.dumps({"statuses": statuses, "told": told, "leaving": leaving}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
