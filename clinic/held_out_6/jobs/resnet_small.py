"""A residual network for pictures, with guards against numbers that are not finite."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Residual(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(4, outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(4, outside)
        self.relu = nn.ReLU()
        self.skip = nn.Identity() if inside == outside and stride == 1 else nn.Conv2d(inside, outside, 1, stride)

    def forward(self, x):
        out = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(out)) + self.skip(x))


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1),
        Residual(16, 16),
        Residual(16, 32, 2),
        Residual(32, 32),
        Residual(32, 64, 2),
        Residual(64, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def check_finite(module, inputs, output):
    if not torch.isfinite(output).all().item():
        raise FloatingPointError(f"{type(module).__name__} gave numbers that are not finite")
    low, high = output.min().item(), output.max().item()
    if max(abs(low), abs(high)) > 1e6:
        print(f"{type(module).__name__}: {low:.3g} to {high:.3g} from {len(inputs)} inputs")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(8)
    net = resnet()
    if not args.fixed:
        for module in net.modules():
            module.register_forward_hook(check_finite)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(8)
    for _ in range(args.steps):
        x = torch.randn(8, 3, 32, 32, generator=generator)
        y = torch.randint(10, (8,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
