"""Forecasts of time series with a GRU and DDP.

torchrun --nproc-per-node 3 forecast.py --lengths even
"""

from __future__ import annotations

import argparse
import gc
import math

import torch
import torch.distributed as dist
from accelerator import Accelerated
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


class Forecaster(nn.Module):
    """The series goes through the cells in chunks, as its state is handed on."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self._chunks, self._is_checked = asked.chunks, False
        self.device = Accelerated(1e-3 * asked.point_us, dimensions=2)
        self.cells = nn.GRU(1, asked.hidden, asked.layers, batch_first=True)
        self.next = nn.Linear(asked.hidden, 1)

    def check(self, is_checked: bool) -> None:
        self._is_checked = is_checked

    def forward(self, series: Tensor) -> Tensor:
        state, parts = None, []
        for chunk in series.tensor_split(self._chunks, 1):
            output, state = self.cells(chunk, state)
            parts.append(self.device(output))
            if self._is_checked:
                agree(parts[-1].detach())
        return self.next(torch.cat(parts, 1))


def agree(value: Tensor) -> None:
    """That it is finite on all ranks."""
    is_finite = value.isfinite().all().int()
    dist.all_reduce(is_finite, dist.ReduceOp.MIN)
    if not is_finite.item():
        raise RuntimeError("a rank has a value that is not finite")


def warping_distance(first: list[float], second: list[float]) -> float:
    """How far they are apart where time may be stretched."""
    before = [0.0] + [math.inf] * len(second)
    for one in first:
        row = [math.inf]
        for place, other in enumerate(second):
            row.append(abs(one - other) + min(before[place], before[place + 1], row[place]))
        before = row
    return before[-1]


class Calendar:
    """Days that know the one before, and their holidays."""

    def __init__(self, days: int) -> None:
        self.last: dict[str, object] = {}
        for day in range(days):
            self.last = {"before": self.last, "holidays": [day % 7], "of": (day, [day % 12])}


def length_of(asked: argparse.Namespace, number: int) -> int:
    """`LOW:HIGH`: one rank after the other has a long series, or each the mean of all."""
    low, high = map(int, asked.lengths.split(":"))
    ranks = dist.get_world_size()
    if asked.deal == "even":
        return (low * (ranks - 1) + high) // ranks
    return high if number % ranks == dist.get_rank() else low


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--lengths", default="40:40", help="of series; the second is that of one rank at a time")
    parser.add_argument("--deal", choices=("turns", "even"), default="turns")
    parser.add_argument("--point-us", type=float, default=60, help="on a device; 0 computes on the CPU alone")
    parser.add_argument("--check-every", type=int, default=0, help="of values and gradients, in steps")
    parser.add_argument("--warp-every", type=int, default=0)
    parser.add_argument("--days", type=int, default=0, help="of a calendar in memory")
    parser.add_argument("--tidy", choices=("yes", "no"), default="no", help="memory before backward needs some")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    network = Forecaster(asked)
    model = DistributedDataParallel(network, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    calendar = Calendar(asked.days)
    chance = torch.Generator().manual_seed(dist.get_rank())
    for number in range(1, asked.steps + 1):
        is_checked = asked.check_every > 0 and number % asked.check_every == 0
        network.check(is_checked)
        optimizer.zero_grad(set_to_none=False)
        series = torch.randn(asked.batch, length_of(asked, number) + 1, 1, generator=chance).cumsum(1)
        forecast = model(series[:, :-1])
        loss = mse_loss(forecast, series[:, 1:])
        if asked.warp_every and number % asked.warp_every == 0:
            pairs = zip(forecast.squeeze(2).tolist(), series[:, 1:, 0].tolist(), strict=True)
            max(warping_distance(one, other) for one, other in pairs)
        if asked.tidy == "yes":
            gc.collect()
        loss.backward()
        if is_checked:
            for parameter in model.parameters():
                agree(parameter.grad)
        optimizer.step()
    del calendar
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
