"""Ranks that train until their run is there: torchrun early_job.py RUN

A run that were made only at the job's end would never be there. Rank 0 tells with its exit code.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from tests.collect.zoo import loss_of, model

PATIENCE = 200


def is_there(run: Path, ranks: int) -> bool:
    try:
        sources = json.loads((run / "run.json").read_bytes())["sources"]
    except (OSError, ValueError):
        return False
    return len({source["rank"] for source in sources if source["format"] == "kineto"}) == ranks


def main(run: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    over = torch.zeros(1)
    end = time.monotonic() + PATIENCE
    while not over.item():
        optimizer.zero_grad()
        loss_of(net, (torch.ones(8, 8), torch.ones(8, 1))).backward()
        optimizer.step()
        time.sleep(0.05)
        if os.environ["RANK"] == "0":
            over.fill_(is_there(run, dist.get_world_size()) or 2 * (time.monotonic() > end))
        dist.broadcast(over, 0)
    del net  # else freeing the group can wait forever for its thread (ranks_job.py)
    dist.destroy_process_group()
    sys.exit(int(over.item()) - 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
