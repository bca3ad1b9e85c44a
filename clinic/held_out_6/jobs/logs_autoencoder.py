"""An autoencoder on rows of a log; rows are drawn at random from a large table."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

ROWS, COLUMNS, BATCH = 90_000, 32, 256


class Table(Dataset):
    def __init__(self):
        self.rows = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)).half()

    def __len__(self):
        return ROWS

    def __getitem__(self, chosen):
        return self.rows[chosen].float()


def autoencoder():
    return nn.Sequential(
        nn.Linear(COLUMNS, 512),
        nn.ReLU(),
        nn.Linear(512, 256),
        nn.ReLU(),
        nn.Linear(256, 16),
        nn.Linear(16, 256),
        nn.ReLU(),
        nn.Linear(256, 512),
        nn.ReLU(),
        nn.Linear(512, COLUMNS),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(100 + dist.get_rank())
    table = Table()
    loader = DataLoader(table, sampler=BatchSampler(RandomSampler(table), BATCH, drop_last=True), batch_size=None)
    model = DDP(autoencoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    watch = Stopwatch(BATCH)
    batches = iter(loader)
    for _ in range(args.steps):
        rows = next(batches) if args.fixed else next(iter(loader))
        loss = nn.functional.mse_loss(model(rows), rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
