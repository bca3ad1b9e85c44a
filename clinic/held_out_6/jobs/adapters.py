"""Adapters in a frozen encoder: only what is small is trained and exchanged."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Adapter(nn.Module):
    def __init__(self, layer, width, inner=16):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down, self.up = nn.Linear(width, inner), nn.Linear(inner, width)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        x = self.layer(x)
        return x + self.up(self.down(x).relu())


class Encoder(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.embed = nn.Embedding(1000, width).requires_grad_(False)
        self.layers = nn.Sequential(
            *(
                Adapter(nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True), width)
                for _ in range(3)
            )
        )
        self.out = nn.Linear(width, 4)

    def forward(self, ids):
        return self.out(self.layers(self.embed(ids)).mean(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Encoder())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(8)
    for _ in range(args.steps):
        ids = torch.randint(1000, (8, 32), generator=generator)
        loss = nn.functional.cross_entropy(model(ids), ids[:, 0] % 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
