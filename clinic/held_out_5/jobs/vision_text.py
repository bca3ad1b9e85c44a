"""Caption pictures: a shared expert on every rank beside four routed ones per rank, two of which a token visits.

Routed experts have places in turn (a balanced assignment); the shared one computes while tokens travel.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

C, LOCAL, N = 48, 4, 160


@torch.library.custom_op("dev::linear", mutates_args=())
def dev_linear(x: torch.Tensor, w: torch.Tensor, us: float) -> torch.Tensor:
    done_at = time.perf_counter() + us * 1e-6 * x.shape[0]
    y = x @ w
    time.sleep(max(done_at - time.perf_counter(), 0))
    return y


def _linear_backward(ctx, g):
    x, w = ctx.saved_tensors
    g = g.contiguous()
    return dev_linear(g, w.t().contiguous(), 2 * ctx.us), x.t() @ g, None


def _linear_context(ctx, inputs, output):
    x, w, ctx.us = inputs
    ctx.save_for_backward(x, w)


dev_linear.register_autograd(_linear_backward, setup_context=_linear_context)


class Exchange(torch.autograd.Function):
    """Returns at once; `Arrive` waits."""

    @staticmethod
    def forward(ctx, x, a, b, box):
        ctx.sizes = a, b
        y = x.new_empty(sum(b), C)
        box.append(dist.all_to_all_single(y, x, b, a, async_op=True))
        return y

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.sizes
        y = g.new_empty(sum(a), C)
        dist.all_to_all_single(y, g.contiguous(), a, b)
        return y, None, None, None


class MixtureWithShared(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.world = world
        self.gate = nn.Linear(C, world * LOCAL)
        self.shared = nn.Parameter(torch.randn(C, C) / 7)
        self.routed = nn.Parameter(torch.randn(LOCAL, C, C) / 7)
        self.seen = torch.zeros(2, dtype=torch.long)

    def forward(self, x):
        experts = self.world * LOCAL
        score = self.gate(x).sigmoid()
        turn = torch.randperm(len(x))
        pick = torch.stack([turn % experts, (turn + 5) % experts], 1)
        flat = pick.flatten()
        order = flat.argsort(stable=True)
        count = flat.bincount(minlength=experts)
        other = torch.empty_like(count)
        dist.all_to_all_single(other, count)
        a, b = count.view(self.world, -1).sum(1).tolist(), other.view(self.world, -1).sum(1).tolist()
        box = []
        visiting = Exchange.apply(x[order // 2], a, b, box)
        shared = torch.relu(dev_linear(x, self.shared, 120.0))
        box.pop().wait()
        self.seen += torch.tensor([len(flat), len(visiting)])
        pieces = list(visiting.split(other.tolist()))
        for number in range(LOCAL):
            own = pieces[number::LOCAL]
            done = dev_linear(torch.cat(own), self.routed[number], 90.0)
            pieces[number::LOCAL] = torch.relu(done).split([len(piece) for piece in own])
        box = []
        back = Exchange.apply(torch.cat(pieces), b, a, box)
        box.pop().wait()
        weighted = back * score.gather(1, pick).flatten()[order, None]
        return x + shared + torch.zeros_like(x).index_add(0, order // 2, weighted)


class Captioner(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.patch = nn.Linear(75, C)
        self.layers = nn.Sequential(MixtureWithShared(world), MixtureWithShared(world))
        self.words = nn.Linear(C, 100)

    def forward(self, patches):
        return self.words(self.layers(torch.tanh(self.patch(patches))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    captioner = Captioner(world)
    skipped = [name for name, _ in captioner.named_parameters() if name.endswith("routed")]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(captioner, skipped)  # noqa: SLF001
    model = DistributedDataParallel(captioner, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(captioner.parameters(), lr=3e-4, fused=True)
    torch.manual_seed(rank + 1)
    seconds = []
    for _ in range(asked.steps):
        start = time.perf_counter()
        patches = torch.rand(N, 75)
        loss = nn.functional.cross_entropy(model(patches), (patches.sum(1) * 2).long() % 100)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    seen = sum(layer.seen for layer in captioner.layers)
    dist.all_reduce(seen)
    if rank == 0 and os.environ.get("CLINIC_STEP_TIMES"):
        said = {"seconds": seconds, "samples": N * world, "loss": loss.item(), "rows": seen.tolist()}
        Path(os.environ["CLINIC_STEP_TIMES"]).write_text(json.dumps(said))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
