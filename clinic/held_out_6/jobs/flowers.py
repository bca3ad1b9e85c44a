"""Pictures of flowers: a worker of each rank reads and augments ahead."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Flowers(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        picture = torch.rand(3, 36, 36, generator=generator)
        top, left = torch.randint(5, (2,), generator=generator).tolist()
        return picture[:, top : top + 32, left : left + 32], index % 17


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 48, 3, padding=1),
            nn.BatchNorm2d(48),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(48, 96, 3, padding=1),
            nn.BatchNorm2d(96),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Linear(96 * 64, 17)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    sampler = DistributedSampler(Flowers())
    loader = DataLoader(Flowers(), batch_size=16, sampler=sampler, num_workers=1, persistent_workers=True)
    model = DDP(Net(), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    watch = Stopwatch(16)
    for _, (pictures, kinds) in zip(range(args.steps), loader, strict=False):
        loss = nn.functional.cross_entropy(model(pictures), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
