"""Train residual layers in a pipeline of ranks with messages of its own: all forward, then all backward.

torchrun --nproc-per-node 3 relay.py --layers 2,2,2 --microbatches 8
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from common import Stopwatch, join, make_optimizer, make_parser
from residual import make_stage
from torch import Tensor, nn
from torch.nn.functional import mse_loss


class Stage:
    def __init__(self, module: nn.Module, rank: int, world: int) -> None:
        self._module, self._rank, self._last = module, rank, world - 1
        self._pending: list[dist.Work] = []

    def run(self, parts: list[Tensor]) -> None:
        """Take all microbatches through this stage and their gradients back."""
        pairs = [self._forward(part) for part in parts]
        for (given, output), part in zip(pairs, parts, strict=True):
            self._backward(given, output, part, len(parts))
        for work in self._pending:
            work.wait()
        self._pending.clear()

    def _forward(self, part: Tensor) -> tuple[Tensor, Tensor]:
        given = part.clone()
        if self._rank:
            dist.recv(given, self._rank - 1)
        output = self._module(given.requires_grad_())
        if self._rank < self._last:
            self._send(output.detach(), self._rank + 1)
        return given, output

    def _backward(self, given: Tensor, output: Tensor, part: Tensor, parts: int) -> None:
        if self._rank == self._last:
            (mse_loss(output, part.roll(1, 1)) / parts).backward()
        else:
            gradient = torch.empty_like(output)
            dist.recv(gradient, self._rank + 1)
            output.backward(gradient)
        if self._rank and given.grad is not None:
            self._send(given.grad, self._rank - 1)

    def _send(self, value: Tensor, rank: int) -> None:
        if work := dist.isend(value.contiguous(), rank):
            self._pending.append(work)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--layers", default="2,2,2", help="of each rank")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--microbatches", type=int, default=8)
    asked = parser.parse_args()
    rank, world = join(asked)
    module = make_stage(int(asked.layers.split(",")[rank]), asked.width, asked.farm_ms)
    stage = Stage(module, rank, world)
    optimizer = make_optimizer("fused", module)
    chance = torch.Generator().manual_seed(asked.seed)
    watch = Stopwatch(asked.batch)
    for _ in range(asked.steps):
        waves = torch.randn(asked.batch, asked.length, asked.width, generator=chance)
        stage.run(list(waves.chunk(asked.microbatches)))
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    watch.finish()


if __name__ == "__main__":
    main()
