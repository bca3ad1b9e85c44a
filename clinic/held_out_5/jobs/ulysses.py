"""Attention over long sequences that are split over the ranks (DeepSpeed Ulysses).

Before attention an all-to-all trades parts of the sequence for heads, after it another one trades them back.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

HEADS, HEAD, LENGTH = 8, 8, 192


@torch.library.custom_op("flash::attend", mutates_args=())
def attend(value: Tensor, pairs: int, seconds: float) -> Tensor:
    time.sleep(pairs * seconds)
    return value.clone()


attend.register_autograd(
    lambda ctx, grad: (attend(grad.contiguous(), ctx.pairs, 2 * ctx.seconds), None, None),
    setup_context=lambda ctx, inputs, output: (setattr(ctx, "pairs", inputs[1]), setattr(ctx, "seconds", inputs[2])),
)


class Trade(torch.autograd.Function):
    """Scatter dimension `scatter` over the ranks and gather dimension `gather`."""

    @staticmethod
    def forward(ctx, value: Tensor, scatter: int, gather: int) -> Tensor:
        ctx.dims = scatter, gather
        return trade(value, scatter, gather)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
        scatter, gather = ctx.dims
        return trade(grad, gather, scatter), None, None


def trade(value: Tensor, scatter: int, gather: int) -> Tensor:
    world = dist.get_world_size()
    out = torch.stack(value.chunk(world, scatter)).contiguous()
    into = torch.empty_like(out)
    dist.all_to_all_single(into, out)
    return torch.cat(tuple(into), gather)


class UlyssesBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = HEADS * HEAD
        self.norm = nn.RMSNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.volume = torch.zeros(2, dtype=torch.long)

    def forward(self, x: Tensor) -> Tensor:
        batch, part, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, part, 3 * HEADS, HEAD)
        heads = qkv.view(batch, part, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4).reshape(3 * batch, HEADS, part, HEAD)
        traded = Trade.apply(heads, 1, 2)
        self.volume += torch.tensor([heads.numel(), traded.numel()])
        query, key, value = traded.chunk(3)
        seen = scaled_dot_product_attention(query, key, value)
        seen = attend(seen, batch * query.shape[1] * query.shape[2] ** 2, 2.4e-7)
        back = Trade.apply(seen, 2, 1).transpose(1, 2).reshape(batch, part, width)
        return x + self.proj(back)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(9)
    inner = nn.Sequential(nn.Linear(32, HEADS * HEAD), UlyssesBlock(), UlyssesBlock(), nn.Linear(HEADS * HEAD, 32))
    model = DistributedDataParallel(inner, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    same = torch.Generator().manual_seed(1)  # all ranks have parts of one sequence
    laps: list[float] = []
    for _ in range(args.steps):
        began = time.perf_counter()
        whole = torch.randn(args.batch, LENGTH, 32, generator=same)
        part = whole.chunk(world, 1)[rank]
        goal = whole.mean(1, keepdim=True).expand_as(part)
        loss = nn.functional.mse_loss(model(part), goal)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        laps.append(time.perf_counter() - began)
    volume = sum(block.volume for block in inner if isinstance(block, UlyssesBlock))
    dist.all_reduce(volume)
    if rank == 0 and "CLINIC_STEP_TIMES" in os.environ:
        result = {"seconds": laps, "samples": args.batch, "loss": loss.item(), "rows": volume.tolist()}
        Path(os.environ["CLINIC_STEP_TIMES"]).write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
