"""Classify pictures: patches go to one of sixteen experts by their texture, and all of them to a shared one.

Two passes are accumulated for each update; rows travel as bfloat16.
"""

import argparse
import contextlib
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DIM = 64
TEXTURES = 64
EXPERTS = 16
PATCHES = 36
IMAGES = 5
PASSES = 2
US = 110


@torch.library.custom_op("tpu::ffn", mutates_args=())
def ffn(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """relu(x @ up) @ down, in a time that follows the rows."""
    until = time.monotonic() + US * 1e-6 * x.shape[0]
    y = torch.relu(x @ up) @ down
    time.sleep(max(0.0, until - time.monotonic()))
    return y


@torch.library.custom_op("tpu::ffn_grad", mutates_args=())
def ffn_grad(
    g: torch.Tensor, x: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    until = time.monotonic() + 2 * US * 1e-6 * x.shape[0]
    hidden = torch.relu(x @ up)
    d_hidden = (g @ down.T) * (hidden > 0)
    grads = d_hidden @ up.T, x.T @ d_hidden, hidden.T @ g
    time.sleep(max(0.0, until - time.monotonic()))
    return grads


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


ffn.register_autograd(lambda ctx, g: ffn_grad(g, *ctx.saved_tensors), setup_context=_save)


class Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, sends, gets, group):
        ctx.sends, ctx.gets, ctx.group = sends, gets, group
        return Dispatch.move(rows, sends, gets, group)

    @staticmethod
    def backward(ctx, grad):
        return Dispatch.move(grad, ctx.gets, ctx.sends, ctx.group), None, None, None

    @staticmethod
    def move(rows, sends, gets, group):
        small = rows.to(torch.bfloat16).contiguous()
        got = small.new_empty((sum(gets), rows.shape[1]))
        dist.all_to_all_single(got, small, output_split_sizes=gets, input_split_sizes=sends, group=group)
        return got.to(rows.dtype)


class LocalExperts(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.ups = nn.ParameterList(nn.Parameter(torch.randn(DIM, 2 * DIM) / 8) for _ in range(count))
        self.downs = nn.ParameterList(nn.Parameter(torch.randn(2 * DIM, DIM) / 12) for _ in range(count))

    def forward(self, rows, which):
        out = torch.empty_like(rows)
        for i, (up, down) in enumerate(zip(self.ups, self.downs, strict=True)):
            take = which == i
            out[take] = ffn(rows[take], up, down)
        return out


class PatchMoE(nn.Module):
    def __init__(self, table, group):
        super().__init__()
        self.group, self.world = group, dist.get_world_size(group)
        self.per_rank = EXPERTS // self.world
        self.register_buffer("table", table)
        self.norm = nn.LayerNorm(DIM)
        self.shared = nn.Linear(DIM, DIM)
        self.scale = nn.Parameter(torch.ones(EXPERTS))
        self.experts = LocalExperts(self.per_rank)
        self.routed, self.computed = 0, 0

    def forward(self, x, texture):
        h = self.norm(x)
        target = self.table[texture]
        order = target.argsort()
        target = target[order]
        sends = torch.bincount(target // self.per_rank, minlength=self.world)
        gets = torch.zeros_like(sends)
        dist.all_to_all_single(gets, sends, group=self.group)
        sends, gets = sends.tolist(), gets.tolist()
        ids = target.new_empty(sum(gets))
        dist.all_to_all_single(ids, target, gets, sends, group=self.group)
        mine = self.experts(Dispatch.apply(h[order], sends, gets, self.group), ids % self.per_rank)
        self.routed += len(target)
        self.computed += len(ids)
        back = Dispatch.apply(mine, gets, sends, self.group) * self.scale[target][:, None]
        return x + F.gelu(self.shared(h)) + torch.zeros_like(x).index_add(0, order, back)


class Net(nn.Module):
    def __init__(self, table, group):
        super().__init__()
        self.stem = nn.Linear(48, DIM)
        self.one, self.two = PatchMoE(table, group), PatchMoE(table.roll(1), group)
        self.head = nn.Linear(DIM, 10)

    def forward(self, patches, texture):
        x = self.two(self.one(self.stem(patches), texture), texture)
        return self.head(x.view(IMAGES, PATCHES, DIM).mean(1))


def make_table(kind):
    """An expert for each texture."""
    if kind == "even":
        return torch.arange(TEXTURES) % EXPERTS
    table = torch.arange(TEXTURES) % 12
    table[torch.randperm(TEXTURES, generator=torch.Generator().manual_seed(3))[:29]] = 13
    return table


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", default=60, type=int)
    ap.add_argument("--table", default="clustered", choices=["clustered", "even"])
    opts = ap.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    expert_group = dist.new_group(list(range(dist.get_world_size())))
    torch.manual_seed(5)
    net = Net(make_table(opts.table), expert_group)
    skip = [n for n, _ in net.named_parameters() if ".experts." in n]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, skip)  # noqa: SLF001
    model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    adam = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=True)
    rng = torch.Generator().manual_seed(dist.get_rank())
    durations = []
    for _ in range(opts.steps):
        start = time.perf_counter()
        for turn in range(PASSES):
            patches = torch.randn(IMAGES * PATCHES, 48, generator=rng)
            texture = torch.randint(TEXTURES, (IMAGES * PATCHES,), generator=rng)
            label = texture.view(IMAGES, PATCHES)[:, 0] % 10
            with contextlib.nullcontext() if turn == PASSES - 1 else model.no_sync():
                loss = F.cross_entropy(model(patches, texture), label) / PASSES
                loss.backward()
        adam.step()
        adam.zero_grad()
        durations.append(time.perf_counter() - start)
    count = torch.tensor([net.one.routed + net.two.routed, net.one.computed + net.two.computed])
    dist.all_reduce(count)
    if dist.get_rank() == 0 and os.getenv("CLINIC_STEP_TIMES"):
        done = {
            "seconds": durations,
            "samples": IMAGES * PASSES * 4,
            "loss": loss.item() * PASSES,
            "rows": count.tolist(),
        }
        pathlib.Path(os.environ["CLINIC_STEP_TIMES"]).write_text(json.dumps(done))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
