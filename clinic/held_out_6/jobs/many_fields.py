"""A deep model of many thin columns; each field of a form has a column of its own, and some forms leave fields out."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FIELDS, BATCH = 90, 64


class Column(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.gain = nn.Parameter(torch.ones(width))
        self.offset = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.addcmul(self.offset, torch.addcmul(self.shift, x, self.scale).tanh(), self.gain)


class Form(nn.Module):
    def __init__(self):
        super().__init__()
        self.columns = nn.ModuleList(Column() for _ in range(FIELDS))
        self.head = nn.Sequential(nn.Linear(16 * FIELDS, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, form):
        return self.head(torch.cat([column(form[:, number]) for number, column in enumerate(self.columns)], dim=1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(90)
    model = DDP(Form(), find_unused_parameters=not args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(BATCH)
    for _ in range(args.steps):
        form = torch.randn(BATCH, FIELDS, 16, generator=generator)
        answer = (form.mean(dim=(1, 2)) > 0).long()
        loss = nn.functional.cross_entropy(model(form), answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
