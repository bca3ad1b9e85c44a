"""A rank of the job of `reduction.py`: python reduction_job.py SECONDS REST

DDP over gloo. It trains for SECONDS behind its tenth step. REST is how long each step sleeps, as a host does that waits
for its device; 0 keeps a core busy.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

WINDOW = "10:3"
WARM_UP = 10


def main(seconds: float, rest: float) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    batch = torch.randn(4, 32, 64)
    # All ranks end with the same step, or a collective would miss a member.
    over = torch.zeros(1)
    step, end = 0, float("inf")
    while not over.item():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        time.sleep(rest)
        step += 1
        if step == WARM_UP:
            end = time.monotonic() + seconds
        over.fill_(float(time.monotonic() > end))
        dist.broadcast(over, 0)
    if os.environ["RANK"] == "0":
        print(f"{step} steps", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]))
