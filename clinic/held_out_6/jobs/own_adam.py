"""An encoder of time series, trained by an optimizer of our own."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class DecoupledAdam(torch.optim.Optimizer):
    """Adam with decoupled weight decay, as in the paper."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                state["m"] = beta1 * state["m"] + (1 - beta1) * p.grad
                state["v"] = beta2 * state["v"] + (1 - beta2) * p.grad * p.grad
                m = state["m"] / (1 - beta1 ** state["step"])
                v = state["v"] / (1 - beta2 ** state["step"])
                p.copy_(p - group["lr"] * (m / (torch.sqrt(v) + group["eps"]) + group["weight_decay"] * p))
        return closure


class SeriesEncoder(nn.Module):
    def __init__(self, width=48, depth=12):
        super().__init__()
        self.inside = nn.Linear(8, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "gate": nn.Linear(width, width),
                    "value": nn.Linear(width, width),
                    "mix": nn.Conv1d(width, width, 5, padding=2, groups=width),
                }
            )
            for _ in range(depth)
        )
        self.outside = nn.Linear(width, 8)

    def forward(self, x):
        x = self.inside(x)
        for block in self.blocks:
            y = block["mix"](block["norm"](x).transpose(1, 2)).transpose(1, 2)
            x = x + block["gate"](y).sigmoid() * block["value"](y)
        return self.outside(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(19)
    model = DDP(SeriesEncoder())
    if args.fixed:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    else:
        optimizer = DecoupledAdam(model.parameters())
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(4)
    for _ in range(args.steps):
        series = torch.randn(4, 64, 8, generator=generator).cumsum(1) / 8
        loss = nn.functional.mse_loss(model(series[:, :-1]), series[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
