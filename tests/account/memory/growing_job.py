"""Trains for some steps, and keeps what its argument says: python growing_job.py WHAT."""

import sys
from typing import Any

import torch

WHAT = sys.argv[1]
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(*[torch.nn.Linear(128, 128) for _ in range(3)])
optimizer = torch.optim.AdamW(net.parameters())
kept: list[Any] = []
losses: list[Any] = []
tables: dict[int, Any] = {}
recent: list[Any] = []
net[2].requires_grad_(WHAT != "late")
for step in range(24):
    if step >= 9:
        net[2].requires_grad_()
    rows = 64 + 16 * step if WHAT == "varying" else 128
    x = torch.randn(rows, 128)
    hidden = net[0](x)
    out = net[2](net[1](hidden))
    if WHAT == "leak":
        kept.append(hidden.detach())
    if WHAT == "cache" and step >= 8 and step % 4 not in tables:
        tables[step % 4] = torch.cos(torch.randn(128, 128))
    if WHAT == "history":
        recent.append(out.detach())
        del recent[:-4]
    if WHAT == "graph":
        losses.append(net(x).mean())
    out.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
