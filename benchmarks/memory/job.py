"""Small training jobs on CPUs: models, optimizers, ways to be parallel, with and without activation checkpointing.

With `--truth FOLDER` a job counts its own memory, with `--peak FOLDER` only the most of all: see `truth.py`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))

from truth import Counted, Truth, Watch

VOCABULARY, LENGTH, CLASSES, CHANNELS = 512, 32, 12, 3


class Blocks(nn.Module):
    """A stem, blocks that may be computed again in backward, and a head."""

    def __init__(self, stem: nn.Module, blocks: list[nn.Module], head: nn.Module, *, is_checkpointed: bool) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = stem, nn.ModuleList(blocks), head
        self.is_checkpointed = is_checkpointed

    def forward(self, value: Tensor) -> Tensor:
        value = self.stem(value)
        for block in self.blocks:
            value = checkpoint(block, value, use_reentrant=False) if self.is_checkpointed else block(value)
        return self.head(value)


def mlp(*, is_checkpointed: bool) -> nn.Module:
    width = 128
    blocks = [nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, width), nn.GELU()) for _ in range(4)]
    return Blocks(nn.Linear(width, width), blocks, nn.Linear(width, CLASSES), is_checkpointed=is_checkpointed)


def cnn(*, is_checkpointed: bool) -> nn.Module:
    width = 16
    blocks = [nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(4)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * width, CLASSES))
    return Blocks(nn.Conv2d(CHANNELS, width, 3, padding=1), blocks, head, is_checkpointed=is_checkpointed)


def transformer(*, is_checkpointed: bool) -> nn.Module:
    width = 64
    blocks = [nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True) for _ in range(3)]
    head = nn.Linear(width, VOCABULARY)
    return Blocks(nn.Embedding(VOCABULARY, width), list(blocks), head, is_checkpointed=is_checkpointed)


def batch_of(model: str, size: int) -> tuple[Tensor, Tensor]:
    if model == "transformer":
        return torch.randint(VOCABULARY, (size, LENGTH)), torch.randint(VOCABULARY, (size, LENGTH))
    shape = (size, 128) if model == "mlp" else (size, CHANNELS, 16, 16)
    return torch.randn(shape), torch.randint(CLASSES, (size,))


def parallel(model: nn.Module, how: str) -> nn.Module:
    if how == "ddp":
        return DistributedDataParallel(model)
    if how == "fsdp2":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("mlp", "cnn", "transformer"), required=True)
    parser.add_argument("--optimizer", choices=("SGD", "AdamW"), required=True)
    parser.add_argument("--how", choices=("single", "ddp", "fsdp2"), default="single")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--peak", type=Path, help="only what the allocator held")
    options = parser.parse_args()

    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    if options.how != "single":
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    plain = {"mlp": mlp, "cnn": cnn, "transformer": transformer}[options.model](is_checkpointed=options.checkpoint)
    model = parallel(plain, options.how)
    settings: dict[str, Any] = {"momentum": 0.9} if options.optimizer == "SGD" else {}
    optimizer = getattr(torch.optim, options.optimizer)(model.parameters(), lr=1e-3, **settings)
    watch = Truth(plain, optimizer, options.how) if options.truth else Counted() if options.peak else Watch()
    torch.manual_seed(1 + rank)
    for step in range(options.steps):
        watch.step(step)
        inputs, targets = batch_of(options.model, options.batch)
        watch.forward(inputs, targets)
        output = model(inputs)
        loss = nn.functional.cross_entropy(output.flatten(0, -2), targets.flatten())
        watch.backward()
        loss.backward()
        watch.update()
        optimizer.step()
        optimizer.zero_grad()
    watch.write(options.truth or options.peak, rank)
    if options.how != "single":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
