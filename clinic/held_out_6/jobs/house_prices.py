"""A network on tables with categories, a validation set, and early stopping."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TabularNet(nn.Module):
    def __init__(self, categories=10, numbers=40):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 12) for _ in range(categories))
        self.net = nn.Sequential(
            nn.Linear(12 * categories + numbers, 512),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(512, 384),
            nn.ReLU(),
            nn.Linear(384, 1),
        )

    def forward(self, kinds, numbers):
        return self.net(torch.cat([*(table(kinds[:, i]) for i, table in enumerate(self.tables)), numbers], 1)).squeeze(
            1
        )


def houses(count, generator):
    kinds = torch.randint(50, (count, 10), generator=generator)
    numbers = torch.randn(count, 40, generator=generator)
    return kinds, numbers, numbers[:, :5].sum(1) + kinds[:, 0] / 50


@torch.no_grad()
def evaluate(net, held, size=256):
    net.eval()
    total = torch.zeros(2)
    for part in zip(*(one.split(size) for one in held), strict=True):
        total += torch.stack([(net(*part[:2]) - part[2]).square().sum(), torch.tensor(float(len(part[2])))])
    dist.all_reduce(total)
    net.train()
    return (total[0] / total[1]).sqrt().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(dist.get_rank())
    torch.manual_seed(31)
    net = TabularNet()
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    held = houses(1024, generator)
    every = 50 if args.fixed else 2
    best, waited = float("inf"), 0
    watch = Stopwatch(256)
    for number in range(args.steps):
        *inputs, price = houses(256, generator)
        loss = nn.functional.mse_loss(model(*inputs), price)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % every == every - 1:
            error = evaluate(net, held)
            best, waited = (error, 0) if error < best else (best, waited + 1)
        watch.lap()
    watch.save()
    if dist.get_rank() == 0:
        print(f"best {best:.3f}, {waited} evaluations ago")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
