"""Pictures from camera traps. Each rank reads from the folder of its own cameras, whose resolutions differ."""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

CAMERAS = {"north": 64, "south": 224}


class Folder(IterableDataset):
    """Frames of one folder, as they come from the camera or from a copy scaled to 64 pixels."""

    def __init__(self, seed, pixels):
        self.seed = seed
        self.pixels = pixels

    def read(self, rng):
        frame = rng.integers(0, 256, (self.pixels, self.pixels, 3), dtype=np.uint8)
        levels = np.sort(frame.reshape(-1, 3)[:: max(1, self.pixels // 64)], axis=0)
        low, high = levels[len(levels) // 50], levels[-len(levels) // 50]
        frame = np.clip((frame.astype(np.float32) - low) / (high - low), 0, 1)
        picture = torch.from_numpy(frame).permute(2, 0, 1).unsqueeze(0)
        return nn.functional.interpolate(picture, size=(32, 32), mode="bilinear", antialias=True)[0]

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        while True:
            yield self.read(rng), int(rng.integers(8))


def classifier():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128 * 64, 8),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    pixels = 64 if args.fixed else CAMERAS["south" if rank == 1 else "north"]
    loader = iter(DataLoader(Folder(rank, pixels), batch_size=12))
    model = DDP(classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    watch = Stopwatch(12)
    for _ in range(args.steps):
        pictures, animals = next(loader)
        loss = nn.functional.cross_entropy(model(pictures), animals)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
