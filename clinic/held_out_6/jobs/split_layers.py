"""Tensor parallel feed-forward blocks with DTensor plans."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Network(nn.Module):
    def __init__(self, width=160, depth=3):
        super().__init__()
        self.first = nn.Linear(64, width)
        self.blocks = nn.ModuleList(FeedForward(width) for _ in range(depth))
        self.last = nn.Linear(width, 16)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def shard(model, mesh, args):
    inner = Shard(-1) if args.fixed else Replicate()
    for block in model.blocks:
        parallelize_module(
            block,
            mesh,
            {
                "up": ColwiseParallel(output_layouts=inner),
                "down": RowwiseParallel(input_layouts=inner),
            },
        )
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = shard(Network(), mesh, args)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    generator = torch.Generator().manual_seed(0)
    watch = Stopwatch(384)
    for _ in range(args.steps):
        x = torch.randn(384, 64, generator=generator)
        loss = nn.functional.mse_loss(model(x), x[:, :16].sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
