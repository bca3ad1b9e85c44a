"""Momentum contrast: a queue of keys in the model serves as negatives."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

QUEUE, DIM, BATCH = 16384, 128, 64


class Encoder(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Linear(512, 512), nn.LayerNorm(512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, DIM)
        )


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = Encoder(), Encoder().requires_grad_(False)
        self.key.load_state_dict(self.query.state_dict())
        self.register_buffer("queue", F.normalize(torch.randn(QUEUE, DIM), dim=1))
        self.place = 0

    @torch.no_grad()
    def follow(self, momentum=0.99):
        torch._foreach_lerp_(list(self.key.parameters()), list(self.query.parameters()), 1 - momentum)

    @torch.no_grad()
    def push(self, keys):
        self.queue[self.place : self.place + len(keys)] = keys
        self.place = (self.place + len(keys)) % QUEUE

    def forward(self, first, second):
        q = F.normalize(self.query(first), dim=1)
        with torch.no_grad():
            self.follow()
            k = F.normalize(self.key(second), dim=1)
        old = self.queue[:4096].clone().detach()
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ old.T], dim=1) / 0.07
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long)), k


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    net = MoCo()
    model = DDP(net, broadcast_buffers=not args.fixed)
    optimizer = torch.optim.SGD(net.query.parameters(), lr=0.03, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(BATCH)
    for _ in range(args.steps):
        x = torch.randn(BATCH, 512, generator=generator)
        noise = torch.randn(2, BATCH, 512, generator=generator) * 0.1
        loss, keys = model(x + noise[0], x + noise[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        every = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
        dist.all_gather(every, keys)
        net.push(torch.cat(every))
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
