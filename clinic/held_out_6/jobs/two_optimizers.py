"""A click model: tables learn with Adagrad, the dense part with Adam; a little log now and then."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Clicks(nn.Module):
    def __init__(self, fields=16, rows=400, width=16):
        super().__init__()
        self.register_buffer("offset", torch.arange(fields) * rows, persistent=False)
        self.table = nn.Embedding(fields * rows, width)
        self.deep = nn.Sequential(nn.Linear(fields * width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU())
        self.out = nn.Linear(256, 1)

    def forward(self, ids):
        fields = self.table(ids + self.offset)
        pairs = 0.5 * (fields.sum(1).square() - fields.square().sum(1)).sum(1)
        return self.out(self.deep(fields.flatten(1))).squeeze(1) + pairs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = Clicks()
    model = DDP(net, broadcast_buffers=False)
    optimizers = [
        torch.optim.Adagrad(net.table.parameters(), lr=0.02),
        torch.optim.Adam([*net.deep.parameters(), *net.out.parameters()], lr=1e-3, fused=True),
    ]
    generator = torch.Generator().manual_seed(dist.get_rank())
    running = torch.zeros(())
    watch = Stopwatch(384)
    for number in range(1, args.steps + 1):
        ids = torch.randint(400, (384, 16), generator=generator)
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), (ids[:, 0] % 2).float())
        model.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        running.lerp_(loss.detach(), 0.1)
        if number % 20 == 0 and dist.get_rank() == 0:
            print(f"{number}: {running.item():.4f}")
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
