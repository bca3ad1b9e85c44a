"""A GAN: the discriminator and the generator are updated in turn, each by its own optimizer."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH, NOISE = 32, 64


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Linear(NOISE, 64 * 4 * 4)
        self.up = nn.Sequential(
            nn.ReLU(), nn.ConvTranspose2d(64, 48, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(48, 32, 4, 2, 1), nn.ReLU()
        )
        self.paint = nn.ConvTranspose2d(32, 1, 4, 2, 1)

    def forward(self, noise):
        return self.paint(self.up(self.start(noise).view(-1, 64, 4, 4))).tanh()


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2)
        )
        self.score = nn.Linear(64 * 8 * 8, 1)

    def forward(self, image):
        return self.score(self.down(image).flatten(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=96)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    generator, discriminator = DistributedDataParallel(Generator()), DistributedDataParallel(Discriminator())
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    torch.manual_seed(1 + dist.get_rank())
    images = torch.rand(512, 1, 32, 32) * 2 - 1
    for step in range(args.steps // 2):
        real = images[torch.randint(len(images), (BATCH,))]
        made = generator(torch.randn(BATCH, NOISE))

        discriminator_optimizer.zero_grad()
        scores = discriminator(torch.cat([real, made.detach()]))
        targets = torch.cat([torch.ones(BATCH), torch.zeros(BATCH)])
        discriminator_loss = nn.functional.binary_cross_entropy_with_logits(scores, targets)
        discriminator_loss.backward()
        discriminator_optimizer.step()

        generator_optimizer.zero_grad()
        generator_loss = nn.functional.binary_cross_entropy_with_logits(discriminator.module(made), torch.ones(BATCH))
        generator_loss.backward()
        generator_optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {discriminator_loss.item():.3f} {generator_loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
