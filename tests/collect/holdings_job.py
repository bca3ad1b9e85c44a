"""Two ranks that train with AdamW, first replicated and then sharded: torchrun holdings_job.py KIND

It prints nothing; what it allocates can be counted by hand: `parameters` elements of float32.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

WIDTH = 64
STEPS = 8


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))


def main(kind: str) -> None:
    dist.init_process_group("gloo")
    model: torch.nn.Module = network()
    if kind == "sharded":
        from torch.distributed.fsdp import fully_shard

        for layer in (model[0], model[2]):
            fully_shard(layer)
        fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.ones(4, WIDTH)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
