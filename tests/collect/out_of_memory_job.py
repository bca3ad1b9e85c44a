"""Trains, and asks for more memory than any machine has in step 5: python out_of_memory_job.py WHERE."""

from __future__ import annotations

import sys

import torch

STEP = 5
MUCH = 2**46


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 256)
        self.last = Last()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.first(x))
        return found


class Last(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ask("forward")
        return x


def ask(where: str) -> None:
    if (where == sys.argv[1] and step == STEP) or (sys.argv[1] == "first" and where == "forward"):
        torch.empty(MUCH, dtype=torch.uint8)


net = Net()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(20):
    out = net(torch.randn(32, 64))
    ask("loss")
    out.register_hook(lambda _: ask("backward"))
    out.square().mean().backward()
    optimizer.register_step_pre_hook(lambda *_: ask("optimizer")) if step == STEP else None
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
