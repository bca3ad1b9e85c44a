"""A deep mixture regressor that keeps the best weights seen."""

import argparse
import copy

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Mixture(nn.Module):
    def __init__(self, inputs=48, width=1024, parts=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.parts = nn.Linear(width, 3 * parts)

    def forward(self, x, y):
        share, mean, scale = self.parts(self.body(x)).chunk(3, dim=1)
        normal = torch.distributions.Normal(mean, nn.functional.softplus(scale) + 1e-3)
        return -torch.logsumexp(share.log_softmax(1) + normal.log_prob(y.unsqueeze(1)), dim=1).mean()


class Keeper:
    """Weights with the lowest smoothed loss of this run."""

    def __init__(self, model, patience):
        self.model, self.patience = model, patience
        self.smooth, self.best, self.kept = None, float("inf"), None
        self.waited = 0

    def see(self, loss):
        self.smooth = loss if self.smooth is None else 0.9 * self.smooth + 0.1 * loss
        self.waited += 1
        if self.smooth < self.best and self.waited > self.patience:
            self.best, self.waited = self.smooth, 0
            self.kept = copy.deepcopy(self.model.state_dict())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(9)
    net = Mixture()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3)
    keeper = Keeper(net, patience=100 if args.fixed else 0)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(64)
    for _ in range(args.steps):
        x = torch.randn(64, 48, generator=generator)
        loss = model(x, x[:, 0].abs() + 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        keeper.see(loss.item())
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
