"""A recurrent autoencoder; rank 0 keeps pictures of how weights and gradients are spread."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Spread:
    """Histograms of weights and gradients by name, for a dashboard."""

    def __init__(self, model, every):
        self.model, self.every = model, every
        self.written = {}

    def after(self, number):
        if number % self.every:
            return
        for name, parameter in self.model.named_parameters():
            self.written[f"weights/{name}"] = (number, *self.histogram(parameter.detach()))
            self.written[f"gradients/{name}"] = (number, *self.histogram(parameter.grad))

    def histogram(self, values):
        counts, edges = torch.histogram(values.flatten(), bins=64)
        return counts.tolist(), edges.tolist()


class Autoencoder(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.encode = nn.GRU(24, width, batch_first=True)
        self.code = nn.Linear(width, 48)
        self.decode = nn.GRU(48, width, batch_first=True)
        self.out = nn.Linear(width, 24)

    def forward(self, x):
        code = self.code(self.encode(x)[1][0])
        return self.out(self.decode(code.unsqueeze(1).expand(-1, x.shape[1], -1))[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(27)
    model = DDP(Autoencoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    spread = Spread(model.module, every=1000 if args.fixed else 1) if dist.get_rank() == 0 else None
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(24)
    for number in range(args.steps):
        x = torch.randn(24, 20, 24, generator=generator).cumsum(1)
        loss = nn.functional.l1_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if spread:
            spread.after(number + 1)
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
