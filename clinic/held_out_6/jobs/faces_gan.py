"""A small DCGAN on 32x32 pictures, generator and discriminator each data parallel."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=64)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--nz", type=int, default=64)
parser.add_argument("--fixed", action="store_true")
opt = parser.parse_args()

ngf = ndf = 32


def weights_init(m):
    if isinstance(m, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(m.weight, 0.0, 0.02)


def make_generator():
    net = nn.Sequential(
        nn.ConvTranspose2d(opt.nz, ngf * 4, 4, 1, 0, bias=False),
        nn.GroupNorm(8, ngf * 4),
        nn.ReLU(True),
        nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),
        nn.GroupNorm(8, ngf * 2),
        nn.ReLU(True),
        nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
        nn.GroupNorm(8, ngf),
        nn.ReLU(True),
        nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    return net.apply(weights_init)


def make_discriminator():
    net = nn.Sequential(
        nn.Conv2d(3, ndf, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False),
        nn.Flatten(0),
    )
    return net.apply(weights_init)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(999)
    netG, netD = DDP(make_generator()), DDP(make_discriminator())  # noqa: N806
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))  # noqa: N806
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))  # noqa: N806
    criterion = nn.BCEWithLogitsLoss()
    generator = torch.Generator().manual_seed(dist.get_rank())
    real_label, fake_label = torch.ones(opt.batch), torch.zeros(opt.batch)
    watch = Stopwatch(opt.batch)
    for _ in range(opt.steps):
        real = torch.rand(opt.batch, 3, 32, 32, generator=generator) * 2 - 1
        noise = torch.randn(opt.batch, opt.nz, 1, 1, generator=generator)

        netD.zero_grad()
        fake = netG(noise)
        judged = netD(torch.cat([real, fake.detach() if opt.fixed else fake]))
        errD = criterion(judged, torch.cat([real_label, fake_label]))  # noqa: N806
        errD.backward()
        optimizerD.step()

        netG.zero_grad()
        noise = torch.randn(opt.batch, opt.nz, 1, 1, generator=generator)
        for p in netD.parameters():
            p.requires_grad_(False)
        errG = criterion(netD.module(netG(noise)), real_label)  # noqa: N806
        errG.backward()
        for p in netD.parameters():
            p.requires_grad_(True)
        optimizerG.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


main()
