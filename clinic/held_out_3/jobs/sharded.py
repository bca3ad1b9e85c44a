"""Train a transformer that is sharded over all ranks (FSDP2).

torchrun --nproc-per-node 2 sharded.py --units blocks
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from loop import Clock, Habits, add_habits, arguments, start
from models import Language, next_token_loss
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def shard(model: Language, units: str) -> None:
    """Each block is a unit, or each layer inside of it."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        if units == "layers":
            for layer in block.modules():
                if isinstance(layer, nn.Linear | nn.LayerNorm):
                    fully_shard(layer, mesh=mesh)
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def save_shard(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Each rank saves its part of the parameters and of the optimizer's states."""
    shards = {name: value.to_local() for name, value in model.state_dict().items()}
    states = [
        {name: value.to_local() if isinstance(value, DTensor) else value for name, value in state.items()}
        for state in optimizer.state.values()
    ]
    torch.save({"model": shards, "states": states}, folder / f"shard-{dist.get_rank()}.pt")


def main() -> None:
    parser = arguments(__doc__)
    add_habits(parser)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--vocabulary", type=int, default=300)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--recompute", choices=("yes", "no"), default="no")
    parser.add_argument("--units", choices=("blocks", "layers"), default="blocks")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--sync", choices=("every", "last"), default="last")
    parser.add_argument("--shards-every", type=int, default=0, help="steps between checkpoints of all ranks")
    asked = parser.parse_args()
    rank = start(asked)
    model = Language(asked)
    shard(model, asked.units)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    chance = torch.Generator().manual_seed(asked.seed * 100 + rank)
    with tempfile.TemporaryDirectory() as folder:
        habits = Habits(asked, model, folder)
        clock = Clock(asked.batch * asked.passes * dist.get_world_size())
        for number in range(1, asked.steps + 1):
            for place in range(1, asked.passes + 1):
                model.set_requires_gradient_sync(asked.sync == "every" or place == asked.passes)
                tokens = torch.randint(asked.vocabulary, (asked.batch, asked.length + 1), generator=chance)
                loss = next_token_loss(model, tokens)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            habits.after_step(number, loss, tokens)
            if asked.shards_every and number % asked.shards_every == 0:
                save_shard(model, optimizer, Path(folder))
            clock.step()
        habits.close()
    clock.close()


if __name__ == "__main__":
    main()
