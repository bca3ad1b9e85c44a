"""Every rank learns by itself for eight steps, then weights are averaged."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--period", type=int, default=8)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(200, 600), nn.Tanh(), nn.Linear(600, 600), nn.Tanh(), nn.Linear(600, 30))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(384)
    for number in range(1, args.steps + 1):
        x = torch.randn(384, 200, generator=generator)
        loss = nn.functional.cross_entropy(model(x), x[:, :30].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % args.period == 0:
            with torch.no_grad():
                weights = parameters_to_vector(model.parameters())
                dist.all_reduce(weights)
                vector_to_parameters(weights / dist.get_world_size(), model.parameters())
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
