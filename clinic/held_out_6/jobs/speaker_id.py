"""Tell speakers apart; the state is saved so that a run can go on after it was ended."""

import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Speaker(nn.Module):
    def __init__(self, mels=40, width=256, speakers=600):
        super().__init__()
        self.frames = nn.Sequential(
            nn.Conv1d(mels, width, 5),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, dilation=2),
            nn.ReLU(),
            nn.Conv1d(width, 3 * width, 1),
            nn.ReLU(),
        )
        self.embed = nn.Linear(6 * width, 512)
        self.out = nn.Linear(512, speakers)

    def forward(self, x):
        x = self.frames(x)
        return self.out(self.embed(torch.cat([x.mean(2), x.std(2)], dim=1)))


class Checkpoints:
    def __init__(self, folder, every):
        self.folder, self.every = Path(folder), every

    def after(self, number, model, optimizer):
        if (number + 1) % self.every:
            return
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": number}
        partial = self.folder / f"rank{dist.get_rank()}.partial"
        with partial.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.folder / f"rank{dist.get_rank()}.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(12)
    model = DDP(Speaker())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(8)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(folder, every=1000 if args.fixed else 5)
        for number in range(args.steps):
            speaker = torch.randint(600, (8,), generator=generator)
            sound = torch.randn(8, 40, 60, generator=generator) + speaker.view(-1, 1, 1) / 600
            loss = nn.functional.cross_entropy(model(sound), speaker)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            checkpoints.after(number, model, optimizer)
            watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
