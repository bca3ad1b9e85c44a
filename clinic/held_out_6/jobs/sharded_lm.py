"""A small decoder whose parameters are sharded over ranks with fully_shard; accumulates over micro-batches."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from stopwatch import Stopwatch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 8 * width), nn.SiLU(), nn.Linear(8 * width, width))

    def forward(self, x):
        x = x + self.mix(self.norm(x))[0]
        return x + self.mlp(x)


class Decoder(nn.Module):
    def __init__(self, vocabulary=1000, width=192, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build(options):
    torch.manual_seed(6)
    model = Decoder()
    for layer in model.layers:
        fully_shard(layer, reshard_after_forward=not options.fixed)
    fully_shard(model, reshard_after_forward=not options.fixed)
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    model = build(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(4)
    for _ in range(options.steps):
        ids = torch.randint(1000, (2, 9), generator=generator)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
