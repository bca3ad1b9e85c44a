"""A Wasserstein GAN on curves: the critic learns in most steps, the generator in every fifth."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH, POINTS = 128, 64


def net(inside, outside, width=384):
    return nn.Sequential(
        nn.Linear(inside, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, outside),
    )


def curves(generator):
    phase = torch.rand(BATCH, 1, generator=generator) * 6.28
    return torch.sin(torch.arange(POINTS) / 6 + phase)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    maker, critic = net(32, POINTS), net(POINTS, 1)
    parallel_maker, parallel_critic = DDP(maker), DDP(critic)
    maker_optimizer = torch.optim.RMSprop(maker.parameters(), lr=5e-5)
    critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(BATCH)
    for number in range(args.steps):
        noise = torch.randn(BATCH, 32, generator=generator)
        if number % 5 < 4:
            with torch.no_grad():
                made = maker(noise)
            judged = parallel_critic(torch.cat([curves(generator), made]))
            loss = judged[BATCH:].mean() - judged[:BATCH].mean()
            critic_optimizer.zero_grad()
            loss.backward()
            critic_optimizer.step()
            with torch.no_grad():
                for p in critic.parameters():
                    p.clamp_(-0.1, 0.1)
        else:
            critic.requires_grad_(False)
            loss = -critic(parallel_maker(noise)).mean()
            maker_optimizer.zero_grad()
            loss.backward()
            maker_optimizer.step()
            critic.requires_grad_(True)
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
