"""Three sparse blocks over a sequence of signals, one expert for each rank in a block, two experts for each token.

Gradients of what all ranks have are averaged by hooks while the backward pass goes on.
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

WIDTH, TOKENS = 64, 112


@torch.library.custom_op("npu::wait_rows", mutates_args=())
def wait_rows(rows: Tensor, micros: float) -> Tensor:
    time.sleep(micros * len(rows) / 1e6)
    return rows.clone()


@wait_rows.register_fake
def _(rows: Tensor, micros: float) -> Tensor:
    return torch.empty_like(rows)


def _backward(ctx, grad: Tensor):
    return wait_rows(grad, ctx.micros * 2), None


def _setup(ctx, inputs, output) -> None:
    ctx.micros = inputs[1]


wait_rows.register_autograd(_backward, setup_context=_setup)


def swap(rows: Tensor, there: list[int], here: list[int]) -> Tensor:
    result = torch.empty((sum(here), *rows.shape[1:]), dtype=rows.dtype)
    work = dist.all_to_all_single(result, rows.contiguous(), here, there, async_op=True)
    work.wait()
    return result


class Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, there: list[int], here: list[int]) -> Tensor:
        ctx.way = there, here
        return swap(rows, there, here)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        there, here = ctx.way
        return swap(grad, here, there), None, None


class Router(nn.Module):
    """Scores of the experts; a tilt is added to that of expert 1."""

    def __init__(self, experts: int, tilt: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, WIDTH) / WIDTH)
        tilts = torch.zeros(experts)
        tilts[1] = tilt
        self.register_buffer("tilts", tilts)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        scores = tokens @ self.weight.T
        order = scores.detach() + self.tilts + torch.randn_like(scores)
        chosen = order.topk(2).indices
        return scores.gather(1, chosen).sigmoid(), chosen


class SparseBlock(nn.Module):
    def __init__(self, world: int, tilt: float, micros: float) -> None:
        super().__init__()
        self.world, self.micros = world, micros
        self.mix = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.router = Router(world, tilt)
        self.expert = nn.ModuleDict({"up": nn.Linear(WIDTH, 96), "down": nn.Linear(96, WIDTH)})
        self.out_rows = self.in_rows = 0

    def forward(self, signal: Tensor) -> Tensor:
        tokens = self.mix(signal.t()).t()
        weights, chosen = self.router(tokens)
        order = chosen.flatten().sort().indices
        sizes = torch.bincount(chosen.flatten(), minlength=self.world)
        theirs = torch.empty_like(sizes)
        dist.all_to_all_single(theirs, sizes)
        there, here = sizes.tolist(), theirs.tolist()
        self.out_rows += sum(there)
        self.in_rows += sum(here)
        guests = Swap.apply(tokens[order // 2], there, here)
        guests = self.expert["down"](torch.nn.functional.silu(self.expert["up"](guests)))
        home = Swap.apply(wait_rows(guests, self.micros), here, there)
        weighted = home * weights.flatten()[order, None]
        return signal + torch.zeros_like(tokens).index_add(0, order // 2, weighted)


def hook_dense(model: nn.Module, world: int) -> list[tuple[dist.Work, nn.Parameter]]:
    pending: list[tuple[dist.Work, nn.Parameter]] = []

    def start(parameter: nn.Parameter) -> None:
        parameter.grad.div_(world)
        pending.append((dist.all_reduce(parameter.grad, async_op=True), parameter))

    for name, parameter in model.named_parameters():
        if ".expert." not in name:
            parameter.register_post_accumulate_grad_hook(start)
    return pending


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tilts", default="0,0,4", help="of the router in each block")
    parser.add_argument("--micros", type=float, default=170, help="for a row in an expert, forward")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    blocks = nn.Sequential(*(SparseBlock(world, float(tilt), args.micros) for tilt in args.tilts.split(",")))
    pending = hook_dense(blocks, world)
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=5e-4, fused=True)
    torch.manual_seed(40 + rank)
    watch = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        phase = torch.rand(WIDTH) * 6
        signal = torch.sin(torch.arange(TOKENS)[:, None] / 5 + phase)
        loss = torch.nn.functional.smooth_l1_loss(blocks(signal), signal.roll(-1, 0))
        loss.backward()
        for work, _ in pending:
            work.wait()
        pending.clear()
        optimizer.step()
        optimizer.zero_grad()
        watch.append(time.perf_counter() - begin)
    rows = torch.tensor([sum(block.out_rows for block in blocks), sum(block.in_rows for block in blocks)])
    dist.all_reduce(rows)
    file = os.environ.get("CLINIC_STEP_TIMES", "")
    if file and not rank:
        result = {"seconds": watch, "samples": TOKENS * world, "loss": loss.detach().item(), "rows": rows.tolist()}
        Path(file).write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
