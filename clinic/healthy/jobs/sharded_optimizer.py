"""ZeroRedundancyOptimizer: each rank updates its part of the parameters and broadcasts it."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH = 384, 1536


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = []
    for _ in range(4):
        layers += [nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 32)))
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, parameters_as_bucket_view=True, lr=1e-3, fused=True
    )
    torch.manual_seed(1 + dist.get_rank())
    for step in range(args.steps):
        batch = torch.randn(BATCH, WIDTH)
        loss = nn.functional.mse_loss(model(batch), batch[:, :32].sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
