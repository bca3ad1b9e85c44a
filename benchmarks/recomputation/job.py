"""One rank of a training job that benchmarks/recomputation runs: alone, or with DDP under torchrun.

Its first steps are recorded, with `--recompute` running some modules' forward again in backward. With `--times` steps
with and without take turns from then on, and the seconds of each are written: machines wander, their ratio less so.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import lostflops

WIDTH, HIDDEN = 256, (256, 2048, 512, 1024, 128, 1536)
BATCH = {"mlp": 512, "transformer": 8}
DIM, HEADS, LENGTH, WORDS, LAYERS = 128, 4, 128, 1000, 4
RECORDED = 12
"""Steps, of which the last five but two are a window."""
TURN = 2
"""Steps with, then as many without."""


def mlp() -> nn.Module:
    """Layers of uneven width: running again pays more in some than in others."""
    sizes = [nn.Sequential(nn.Linear(WIDTH, size), nn.GELU(), nn.Linear(size, WIDTH), nn.ReLU()) for size in HIDDEN]
    return nn.Sequential(*sizes, nn.Linear(WIDTH, 10))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)

    def forward(self, value: Tensor) -> Tensor:
        parts = self.qkv(value).view(*value.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        weights = (parts[0] @ parts[1].transpose(-1, -2) * (DIM // HEADS) ** -0.5).softmax(-1)
        return self.out((weights @ parts[2]).transpose(1, 2).reshape(value.shape))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, value: Tensor) -> Tensor:
        value = value + self.attention(self.before(value))
        return value + self.mlp(self.after(value))


def transformer() -> nn.Module:
    return nn.Sequential(nn.Embedding(WORDS, DIM), *(Block() for _ in range(LAYERS)), nn.Linear(DIM, WORDS))


def batch(model: str) -> tuple[Tensor, Tensor]:
    if model == "mlp":
        return torch.randn(BATCH[model], WIDTH), torch.randint(10, (BATCH[model],))
    shape = (BATCH[model], LENGTH)
    return torch.randint(WORDS, shape), torch.randint(WORDS, shape)


def wrap(model: nn.Module, names: list[str]) -> Callable[[bool], None]:
    """Returns what switches it on and off."""
    modules = [model.get_submodule(name) for name in names]
    plain = [module.forward for module in modules]
    again = [partial(checkpoint, forward, use_reentrant=False) for forward in plain]

    def switch(on: bool) -> None:
        for module, forward in zip(modules, again if on else plain, strict=True):
            module.forward = forward

    return switch


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("mlp", "transformer"), default="mlp")
    parser.add_argument("--recompute", default="", help="modules, with commas between")
    parser.add_argument("--steps", type=int, default=48, help="that are timed")
    parser.add_argument("--folder", type=Path, required=True, help="record there")
    parser.add_argument("--times", type=Path, help="where rank 0 writes the seconds of steps, with and without")
    return parser.parse_args()


def train(asked: argparse.Namespace) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    own = mlp() if asked.model == "mlp" else transformer()
    switch = wrap(own, [name for name in asked.recompute.split(",") if name])
    switch(bool(asked.recompute))
    model = DistributedDataParallel(own) if dist.is_initialized() else own
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)

    def step() -> None:
        value, wanted = batch(asked.model)
        functional.cross_entropy(model(value).flatten(0, -2), wanted.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    with lostflops.record(asked.folder, steps="5:5", options=("shapes", "modules", "memory"), overhead=0.5):
        for _ in range(RECORDED):
            step()
    if not asked.times:
        return
    turns: list[dict[str, float | bool]] = []
    for number in range(asked.steps // TURN):
        switch(number % 2 == 0)
        began, spent = time.perf_counter(), time.process_time()
        for _ in range(TURN):
            step()
        took = {"seconds": time.perf_counter() - began, "processor": time.process_time() - spent}
        turns.append({"with": number % 2 == 0, **took})
    if int(os.environ.get("RANK", "0")) == 0:
        asked.times.write_text(json.dumps(turns))


def main() -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    train(arguments())
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
