"""A denoising diffusion model on small pictures, with averaged weights for sampling."""

import argparse
import copy
import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    steps: int = 64
    fixed: bool = False
    width: int = 48
    batch: int = 8
    times: int = 1000
    decay: float = 0.999


class TimedBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(64, width)

    def forward(self, x, t):
        y = self.conv1(nn.functional.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
        return x + self.conv2(nn.functional.silu(self.norm2(y)))


class Denoiser(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.inside = nn.Conv2d(3, config.width, 3, padding=1)
        self.blocks = nn.ModuleList(TimedBlock(config.width) for _ in range(3))
        self.wide = nn.Sequential(nn.Linear(64, 2048), nn.SiLU(), nn.Linear(2048, 1024), nn.SiLU(), nn.Linear(1024, 64))
        self.outside = nn.Conv2d(config.width, 3, 3, padding=1)
        self.register_buffer("waves", torch.exp(torch.linspace(0, math.log(1000), 32)))

    def forward(self, x, t):
        angle = t[:, None] * self.waves
        emb = self.wide(torch.cat([angle.sin(), angle.cos()], dim=1))
        x = self.inside(x)
        for block in self.blocks:
            x = block(x, emb)
        return self.outside(x)


class WeightAverage:
    def __init__(self, model, config):
        self.model, self.config = model, config
        self.average = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self):
        d = self.config.decay
        if self.config.fixed:
            torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - d)
            return
        new, old = copy.deepcopy(self.model.state_dict()), copy.deepcopy(self.average.state_dict())
        for name in new:
            old[name] = d * old[name] + (1 - d) * new[name]
        self.average.load_state_dict(old)


def main(config):
    dist.init_process_group("gloo")
    torch.manual_seed(15)
    net = Denoiser(config)
    model = DDP(net, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    average = WeightAverage(net, config)
    kept = torch.cos(torch.linspace(0, math.pi / 2, config.times)) ** 2
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(config.batch)
    for _ in range(config.steps):
        x = torch.rand(config.batch, 3, 16, 16, generator=generator) * 2 - 1
        t = torch.randint(config.times, (config.batch,), generator=generator)
        noise = torch.randn(x.shape, generator=generator)
        share = kept[t].view(-1, 1, 1, 1)
        loss = nn.functional.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, t / config.times), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    main(Config(**vars(parser.parse_args())))
