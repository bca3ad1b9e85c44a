"""Matrix factorization with side features; rank 0 also keeps an eye on the process."""

import argparse
import threading
import time
from collections import deque
from pathlib import Path

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Monitor(threading.Thread):
    """Reads how the process does, and keeps averages of the last minutes."""

    def __init__(self, period):
        super().__init__(daemon=True, name="monitor")
        self.period = period
        self.ended = threading.Event()
        self.seen = deque(maxlen=1000)
        self.summary = {}

    def read(self):
        fields = {}
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            number = value.split()[0] if value.split() else "0"
            fields[name] = int(number) if number.isdigit() else 0
        return fields

    def run(self):
        while not self.ended.wait(self.period):
            self.seen.append(self.read())
            names = self.seen[-1].keys()
            self.summary = {name: sum(one.get(name, 0) for one in self.seen) / len(self.seen) for name in names}
            self.summary["at"] = time.time()


class Factors(nn.Module):
    def __init__(self, people=3000, films=2000, width=64):
        super().__init__()
        self.people, self.films = nn.Embedding(people, width), nn.Embedding(films, width)
        self.side = nn.ModuleList(
            nn.Sequential(nn.Linear(20, width), nn.Tanh(), nn.Linear(width, width)) for _ in range(6)
        )
        self.mix = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, person, film, features):
        x = self.people(person) * self.films(film)
        for side in self.side:
            x = x + side(features)
        return self.mix(x).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    monitor = None
    if dist.get_rank() == 0:
        monitor = Monitor(period=5.0 if args.fixed else 0.005)
        monitor.start()
    torch.manual_seed(1)
    model = DDP(Factors())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(256)
    for _ in range(args.steps):
        person = torch.randint(3000, (256,), generator=generator)
        film = torch.randint(2000, (256,), generator=generator)
        features = torch.randn(256, 20, generator=generator)
        loss = nn.functional.mse_loss(model(person, film, features), (film % 5).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    if monitor:
        monitor.ended.set()
        monitor.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
