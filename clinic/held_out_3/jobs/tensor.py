"""Train perceptrons whose matrices are split over ranks (tensor parallelism).

torchrun --nproc-per-node 2 tensor.py
"""

from __future__ import annotations

import tempfile

import torch
import torch.distributed as dist
from loop import Clock, Habits, Remote, add_habits, arguments, start
from models import Perceptron
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import mse_loss


class Tower(nn.Module):
    def __init__(self, layers: int, width: int, device_ms: float) -> None:
        super().__init__()
        self.device = Remote(device_ms)
        self.blocks = nn.ModuleList(Perceptron(width) for _ in range(layers))

    def forward(self, value: Tensor) -> Tensor:
        value = self.device(value)
        for block in self.blocks:
            value = value + block(value)
        return value


def main() -> None:
    parser = arguments(__doc__)
    add_habits(parser)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=32)
    asked = parser.parse_args()
    start(asked)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Tower(asked.layers, asked.width, asked.device_ms)
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    chance = torch.Generator().manual_seed(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        habits = Habits(asked, model, folder)
        clock = Clock(asked.batch)
        for number in range(1, asked.steps + 1):
            batch = torch.randn(asked.batch, asked.length, asked.width, generator=chance)
            loss = mse_loss(model(batch), batch.flip(1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            habits.after_step(number, loss, batch)
            clock.step()
        habits.close()
    clock.close()


if __name__ == "__main__":
    main()
