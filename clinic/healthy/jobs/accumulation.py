"""Gradient accumulation: four microbatches a step, of which only the last reduces gradients."""

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH, MICROBATCHES = 256, 512, 4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = []
    for _ in range(3):
        layers += [nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.SiLU()]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH)), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    torch.manual_seed(1 + dist.get_rank())
    for step in range(args.steps):
        optimizer.zero_grad()
        for number in range(MICROBATCHES):
            is_last = number == MICROBATCHES - 1
            batch = torch.randn(BATCH, WIDTH)
            with nullcontext() if is_last else model.no_sync():
                loss = nn.functional.mse_loss(model(batch), batch.cos()) / MICROBATCHES
                loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item() * MICROBATCHES:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
