"""Two models in turn, updated by one optimizer: a step of a model for sequences, then a step of a model for images."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=96)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    sequences = nn.Sequential(nn.Conv1d(32, 128, 5, padding=2), nn.GELU(), nn.Conv1d(128, 32, 5, padding=2))
    images = nn.Sequential(nn.Conv2d(3, 48, 3, padding=1), nn.GELU(), nn.Conv2d(48, 3, 3, padding=1))
    models = [DistributedDataParallel(sequences), DistributedDataParallel(images)]
    optimizer = torch.optim.AdamW([*sequences.parameters(), *images.parameters()], lr=1e-3, fused=True)
    torch.manual_seed(1 + dist.get_rank())
    batches = [torch.randn(16, 12, 32, 96), torch.randn(16, 16, 3, 40, 40)]
    for step in range(args.steps):
        turn = step % 2
        batch = batches[turn][step // 2 % 16]
        loss = nn.functional.mse_loss(models[turn](batch), batch.sigmoid())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
