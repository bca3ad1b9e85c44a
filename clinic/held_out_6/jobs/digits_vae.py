"""A variational autoencoder on pictures of digits."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class VAE(nn.Module):
    def __init__(self, code=32):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * 49, 2 * code),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code, 64 * 49),
            nn.ReLU(),
            nn.Unflatten(1, (64, 7, 7)),
            nn.ConvTranspose2d(64, 32, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, 2, 1),
        )

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (spread / 2).exp()
        fit = nn.functional.binary_cross_entropy_with_logits(self.decoder(code), x, reduction="sum")
        return (fit - 0.5 * (1 + spread - mean.square() - spread.exp()).sum()) / len(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--log-every", type=int, default=20)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DDP(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(24)
    for number in range(args.steps):
        x = torch.rand(24, 1, 28, 28, generator=generator).round()
        loss = model(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % args.log_every == 0 and dist.get_rank() == 0:
            print(f"{number} {loss.item():.2f}")
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
