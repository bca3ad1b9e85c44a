"""Data-parallel training without DDP: gradients are averaged by the script itself, after the backward pass.

torchrun --nproc-per-node 2 by_hand.py --reduce flat
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from network import Network
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def reduce_each(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def reduce_flat(model: nn.Module) -> None:
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for gradient in gradients:
        gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--width", type=int, default=500)
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sample-ms", type=float, default=4)
    parser.add_argument("--reduce", choices=("each", "flat", "ddp"), default="ddp")
    asked = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model: nn.Module = Network(asked.layers, asked.width, asked.sample_ms, asked.heads)
    if asked.reduce == "ddp":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    chance = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(asked.steps):
        batch: Tensor = torch.randn(asked.batch, asked.width, generator=chance)
        model(batch).square().mean().backward()
        if asked.reduce == "each":
            reduce_each(model)
        elif asked.reduce == "flat":
            reduce_flat(model)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
