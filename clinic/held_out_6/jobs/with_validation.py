"""Picture classification; a small validation set is looked at every 25 steps, shared by the ranks."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, steps):
        self.steps = steps
        torch.manual_seed(4)
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 49, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )
        self.model = DDP(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, fused=True)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 3e-3, total_steps=10_000)
        self.generator = torch.Generator().manual_seed(dist.get_rank())
        self.held = self.batch(64)

    def batch(self, size):
        x = torch.randn(size, 3, 28, 28, generator=self.generator)
        return x, x.flatten(1)[:, :10].argmax(1)

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        x, y = self.held
        right = (self.net(x).argmax(1) == y).sum().float()
        dist.all_reduce(right)
        self.net.train()
        return right / (len(y) * dist.get_world_size())

    def fit(self):
        watch = Stopwatch(32)
        for number in range(1, self.steps + 1):
            x, y = self.batch(32)
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            if number % 25 == 0:
                accuracy = self.validate()
                if dist.get_rank() == 0:
                    print(f"step {number}: {accuracy.item():.3f}")
            watch.lap()
        watch.save()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    dist.init_process_group("gloo")
    Trainer(**vars(parser.parse_args())).fit()
    dist.destroy_process_group()
