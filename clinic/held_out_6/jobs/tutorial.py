"""Distributed SGD written by hand: every rank trains its part, gradients are averaged with all-reduce."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from stopwatch import Stopwatch
from torch import nn, optim


class Net(nn.Module):
    """Residual layers."""

    def __init__(self, depth=14, width=160):
        super().__init__()
        self.first = nn.Linear(100, width)
        self.body = nn.ModuleList(nn.ModuleList([nn.LayerNorm(width), nn.Linear(width, width)]) for _ in range(depth))
        self.last = nn.Linear(width, 10)

    def forward(self, x):
        x = self.first(x)
        for norm, linear in self.body:
            x = x + F.silu(linear(norm(x)))
        return F.log_softmax(self.last(x), dim=1)


def average_gradients(model):
    """Gradient averaging."""
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


def average_at_once(model):
    grads = [param.grad for param in model.parameters()]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    torch._foreach_copy_(
        grads, [p.view_as(g) for p, g in zip(flat.split([g.numel() for g in grads]), grads, strict=True)]
    )


def run(args):
    torch.manual_seed(1234)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(256)
    for _ in range(args.steps):
        data = torch.randn(256, 100, generator=generator)
        target = data[:, :10].argmax(dim=1)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        if args.fixed:
            average_at_once(model)
        else:
            average_gradients(model)
        optimizer.step()
        watch.lap()
    watch.save()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    dist.init_process_group("gloo")
    run(parser.parse_args())
    dist.destroy_process_group()
