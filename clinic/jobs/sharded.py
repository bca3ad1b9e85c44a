"""FSDP2: parameters are sharded over all ranks, one unit per block.

torchrun --nproc-per-node 2 sharded.py
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from network import Network
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=500)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sample-ms", type=float, default=4)
    parser.add_argument("--units", choices=("blocks", "whole"), default="blocks")
    asked = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    model = Network(asked.layers, asked.width, asked.sample_ms)
    if asked.units == "blocks":
        for block in model:
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    chance = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(asked.steps):
        batch = torch.randn(asked.batch, asked.width, generator=chance)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
