"""Train a recommender: embeddings of items, crossed features, a small tower, and DDP.

torchrun --nproc-per-node 2 recommender.py --buffers kept
"""

from __future__ import annotations

import tempfile

import torch
import torch.distributed as dist
from loop import Clock, Habits, Remote, add_habits, arguments, start
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel


class Crosses:
    """Features of all pairs, through several tables of the size of a batch: new ones for each step, or kept ones."""

    def __init__(self, rows: int, columns: int, tables: int, is_kept: bool) -> None:
        self._shape, self._tables = (rows, columns), tables
        self._kept = [torch.empty(self._shape) for _ in range(tables)] if is_kept else []

    def __call__(self, dense: Tensor) -> Tensor:
        value = dense.repeat(1, self._shape[1] // dense.shape[1]) if not self._kept else self._tiled(dense)
        for place in range(1, self._tables):
            if self._kept:
                torch.mul(value, 0.9, out=self._kept[place])
                value = self._kept[place]
            else:
                value = torch.mul(value, 0.9)
        return value.view(self._shape[0], -1, 64).mean(1)

    def _tiled(self, dense: Tensor) -> Tensor:
        self._kept[0].view(self._shape[0], -1, dense.shape[1]).copy_(dense[:, None])
        return self._kept[0]


class Tower(nn.Module):
    def __init__(self, items: int, width: int, device_ms: float) -> None:
        super().__init__()
        self.items = nn.EmbeddingBag(items, width, mode="mean")
        self.device = Remote(device_ms)
        self.layers = nn.Sequential(nn.Linear(width + 64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU())
        self.head = nn.Linear(128, 1)

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        bags, crosses = inputs
        value = torch.cat([self.items(bags), crosses], 1)
        return self.head(self.device(self.layers(value))).squeeze(1)


def main() -> None:
    parser = arguments(__doc__)
    add_habits(parser)
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--columns", type=int, default=64, help="of crossed features, for each sample")
    parser.add_argument("--tables", type=int, default=2)
    parser.add_argument("--buffers", choices=("new", "kept"), default="kept")
    asked = parser.parse_args()
    rank = start(asked)
    model = DistributedDataParallel(Tower(asked.items, asked.width, asked.device_ms), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    chance = torch.Generator().manual_seed(asked.seed * 100 + rank)
    crosses = Crosses(asked.batch, asked.columns, asked.tables, asked.buffers == "kept")
    with tempfile.TemporaryDirectory() as folder:
        habits = Habits(asked, model, folder)
        clock = Clock(asked.batch * dist.get_world_size())
        for number in range(1, asked.steps + 1):
            bags = torch.randint(asked.items, (asked.batch, 20), generator=chance)
            inputs = (bags, crosses(torch.randn(asked.batch, 64, generator=chance)))
            clicked = (bags[:, 0] % 2).float()
            loss = binary_cross_entropy_with_logits(model(inputs), clicked)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            habits.after_step(number, loss, inputs)
            clock.step()
        habits.close()
    clock.close()


if __name__ == "__main__":
    main()
