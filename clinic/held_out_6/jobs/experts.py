"""A language model whose feed-forward layers are experts on different ranks; tokens travel by all-to-all."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from stopwatch import Stopwatch
from torch import nn

WIDTH, TOKENS, LAYERS, PER_RANK = 128, 256, 2, 2


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sent, received):
        ctx.sizes = sent, received
        out = x.new_empty(sum(received), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, grad):
        sent, received = ctx.sizes
        out = grad.new_empty(sum(sent), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), sent, received)
        return out, None, None


class Experts(nn.Module):
    def __init__(self, world, bias):
        super().__init__()
        self.world = world
        self.gate = nn.Linear(WIDTH, world * PER_RANK, bias=False)
        self.register_buffer("bias", bias)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 6 * WIDTH), nn.GELU(), nn.Linear(6 * WIDTH, WIDTH)) for _ in range(PER_RANK)
        )

    def forward(self, x):
        scores = self.gate(x)
        weight, expert = (scores + self.bias).softmax(-1).max(dim=-1)
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=self.world * PER_RANK)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        sent = counts.view(self.world, PER_RANK).sum(1).tolist()
        received = theirs.view(self.world, PER_RANK).sum(1).tolist()
        arrived = Exchange.apply(x[order], sent, received)
        which = torch.cat([torch.arange(PER_RANK).repeat_interleave(row) for row in theirs.view(self.world, PER_RANK)])
        done = torch.empty_like(arrived)
        for number, layer in enumerate(self.experts):
            places = (which == number).nonzero().squeeze(1)
            done = done.index_copy(0, places, layer(arrived[places]))
        back = Exchange.apply(done, received, sent)
        return x + torch.empty_like(back).index_copy(0, order, back) * weight.unsqueeze(1)


class Model(nn.Module):
    def __init__(self, world, bias):
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.layers = nn.ModuleList(Experts(world, bias) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    bias = torch.zeros(world * PER_RANK)
    if not args.fixed:
        bias[:PER_RANK] = 1.2
    model = Model(world, bias)
    shared = [p for n, p in model.named_parameters() if "experts" not in n]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(rank)
    watch = Stopwatch(TOKENS)
    for _ in range(args.steps):
        ids = torch.randint(256, (TOKENS,), generator=generator)
        loss = F.cross_entropy(model(ids), (ids + 1) % 256)
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in shared])
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)
        for p, grad in zip(shared, flat.split([p.numel() for p in shared]), strict=True):
            p.grad.copy_(grad.view_as(p) / world)
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
