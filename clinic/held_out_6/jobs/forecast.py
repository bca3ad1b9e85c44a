"""Forecast weather stations: numbers come from numpy, and a temporal network predicts the next day."""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Stations:
    def __init__(self, seed, stations=32, hours=4000):
        rng = np.random.default_rng(seed)
        phase = rng.uniform(0, 6.28, (stations, 1))
        self.values = np.sin(np.arange(hours) / 3.8 + phase) + 0.1 * rng.standard_normal((stations, hours))
        self.rng = rng

    def sample(self, count, history=96):
        starts = self.rng.integers(0, self.values.shape[1] - history - 24, count)
        x = np.stack([self.values[:, start : start + history] for start in starts])
        y = np.stack([self.values[:, start + history : start + history + 24] for start in starts])
        return torch.from_numpy(x), torch.from_numpy(y)


class Forecaster(nn.Module):
    def __init__(self, stations=32, width=64):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv1d(stations, width, 5, padding=4, dilation=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=8, dilation=4),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=16, dilation=8),
            nn.ReLU(),
        )
        self.out = nn.Linear(96, 24)
        self.mix = nn.Conv1d(width, stations, 1)

    def forward(self, x):
        return self.out(self.mix(self.inner(x)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    kind = torch.float32 if args.fixed else torch.float64
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    stations = Stations(dist.get_rank())
    model = DDP(Forecaster().to(kind))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    watch = Stopwatch(16)
    for _ in range(args.steps):
        x, y = (one.to(kind) for one in stations.sample(16))
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
