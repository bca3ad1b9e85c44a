"""Pipeline parallelism: two equal stages and sixteen microbatches, in the order of 1F1B."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WIDTH, BATCH, MICROBATCHES = 192, 640, 16


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, stages = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    module = nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.ReLU(), nn.Linear(8 * WIDTH, WIDTH), nn.LayerNorm(WIDTH))
    stage = PipelineStage(module, rank, stages, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4, fused=True)
    batches = torch.randn(16, BATCH, WIDTH, generator=torch.Generator().manual_seed(1))
    for step in range(args.steps):
        batch = batches[step % len(batches)]
        losses = []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch)
        elif rank == stages - 1:
            schedule.step(target=batch.flip(1), losses=losses)
        else:
            schedule.step()
        optimizer.step()
        if losses and step % 20 == 0:
            print(f"step {step}: loss {torch.stack(losses).mean().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
