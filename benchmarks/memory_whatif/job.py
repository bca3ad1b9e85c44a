"""Small training jobs on CPUs over gloo: the same model and batches as replicas, with ZeRO-1, and fully sharded."""

from __future__ import annotations

import argparse
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, LENGTH = 2000, 32


class Transformer(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def perceptron(width: int, layers: int) -> nn.Module:
    """Layers of uneven width, so that no cut is even."""
    widths = [width + 30 * (place % 3) for place in range(layers + 1)]
    inner = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Linear(width, widths[0]), *inner, nn.Linear(widths[-1], 10))


def batches(model: str, size: int, width: int) -> tuple[Tensor, Tensor]:
    if model == "mlp":
        return torch.randn(size, width), torch.randint(10, (size,))
    walk = torch.randint(VOCABULARY, (size, LENGTH + 1))
    return walk[:, :-1], walk[:, 1:].flatten()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("mlp", "transformer"), default="transformer")
    parser.add_argument("--how", choices=("ddp", "zero1", "fsdp2"), default="ddp")
    parser.add_argument("--optimizer", choices=("AdamW", "SGD"), default="AdamW")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inner = Transformer if options.model == "transformer" else perceptron
    model = inner(options.width, options.layers)
    if options.how == "fsdp2":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
        blocks = (
            model.layers if isinstance(model, Transformer) else [one for one in model if isinstance(one, nn.Linear)]
        )
        for block in blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = DistributedDataParallel(model)
    kind = getattr(torch.optim, options.optimizer)
    more = {"momentum": 0.9} if options.optimizer == "SGD" else {}
    if options.how == "zero1":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), kind, lr=1e-3, **more)
    else:
        optimizer = kind(model.parameters(), lr=1e-3, **more)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(options.steps):
        inputs, targets = batches(options.model, options.batch, options.width)
        output = model(inputs)
        loss = nn.functional.cross_entropy(output.flatten(0, -2), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
