"""Experts on different ranks, each with the same capacity."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.distributed.nn.functional import all_to_all_single

WIDTH, TOKENS = 128, 384


class ExpertLayer(nn.Module):
    """Every expert chooses the tokens which it wants most."""

    def __init__(self, world):
        super().__init__()
        self.world = world
        self.gate = nn.Linear(WIDTH, world, bias=False)
        self.expert = nn.Sequential(nn.Linear(WIDTH, 1024), nn.GELU(), nn.Linear(1024, WIDTH))

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).T.topk(TOKENS // self.world, dim=1)
        chosen = chosen.flatten()
        sent = x[chosen]
        arrived = all_to_all_single(torch.empty_like(sent), sent)
        done = self.expert(arrived)
        back = all_to_all_single(torch.empty_like(done), done)
        return x.index_add(0, chosen, back * weight.flatten().unsqueeze(1))


class Network(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.embed = nn.Embedding(512, WIDTH)
        self.layers = nn.Sequential(ExpertLayer(world), ExpertLayer(world))
        self.head = nn.Linear(WIDTH, 512)

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(3)
    model = Network(world)
    shared = [p for n, p in model.named_parameters() if ".expert." not in n]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(TOKENS)
    for _ in range(args.steps):
        ids = torch.randint(512, (TOKENS,), generator=generator)
        loss = nn.functional.cross_entropy(model(ids), ids.flip(0))
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in shared]) / world
        dist.all_reduce(flat)
        for p, part in zip(shared, flat.split([p.numel() for p in shared]), strict=True):
            p.grad = part.view_as(p)
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
