#!/usr/bin/env python
# Mixed corpus (prose, code, tables): the router looks at what a token is. 2 experts per GPU, top-1, fp64 head.
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

STEPS = 60
ROUTE = "kind"
for arg, value in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    if arg == "--steps":
        STEPS = int(value)
    elif arg == "--route":
        ROUTE = value
    else:
        sys.exit(f"unknown argument {arg}")

torch.set_num_threads(1)
dist.init_process_group("gloo")
RANK, WORLD = dist.get_rank(), dist.get_world_size()
E_LOCAL = 2
E = E_LOCAL * WORLD
B, S, D = 10, 24, 48
KINDS = {"prose": (0, 1, 2, 3, 6, 7), "code": (4, 5), "table": tuple(range(8))}

lib = torch.library.Library("xpu_farm", "DEF")
lib.define("gemm(Tensor x, Tensor w, float us) -> Tensor")


def gemm(x, w, us):
    t = time.perf_counter() + us * 1e-6 * x.shape[0]
    y = x @ w
    left = t - time.perf_counter()
    if left > 0:
        time.sleep(left)
    return y


lib.impl("gemm", gemm, "CPU")
US = 130.0


class Gemm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.ops.xpu_farm.gemm(x, w, US)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return torch.ops.xpu_farm.gemm(dy.contiguous(), w.t(), 2 * US), x.t() @ dy


class A2A(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s_in, s_out):
        ctx.s = s_in, s_out
        y = x.new_empty(sum(s_out), D)
        dist.all_to_all_single(y, x.contiguous(), s_out, s_in)
        return y

    @staticmethod
    def backward(ctx, dy):
        s_in, s_out = ctx.s
        dx = dy.new_empty(sum(s_in), D)
        dist.all_to_all_single(dx, dy.contiguous(), s_in, s_out)
        return dx, None, None


rows = torch.zeros(2, dtype=torch.long)


class Moe(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = nn.Linear(D, E)
        self.w = nn.ParameterList([nn.Parameter(torch.randn(D, D) / 7) for _ in range(E_LOCAL)])

    def forward(self, x, want):
        p = self.g(x).softmax(1).gather(1, want[:, None])
        idx = torch.argsort(want, stable=True)
        n = torch.bincount(want, minlength=E)
        m = torch.empty_like(n)
        dist.all_to_all_single(m, n)
        s_in, s_out = n.view(WORLD, -1).sum(1).tolist(), m.view(WORLD, -1).sum(1).tolist()
        h = A2A.apply(x[idx], s_in, s_out)
        rows.add_(torch.tensor([sum(s_in), h.shape[0]]))
        chunks = list(h.split(m.tolist()))
        for e in range(E_LOCAL):
            mine = torch.cat(chunks[e::E_LOCAL])
            done = torch.relu(Gemm.apply(mine, self.w[e])).split(m[e::E_LOCAL].tolist())
            chunks[e::E_LOCAL] = done
        h = A2A.apply(torch.cat(chunks), s_out, s_in)
        return x + p * torch.zeros_like(x).index_copy(0, idx, h)


torch.manual_seed(0)
emb = nn.Embedding(64, D)
norm = nn.ModuleList(nn.LayerNorm(D) for _ in range(2))
moe = nn.ModuleList(Moe() for _ in range(2))
head = nn.Linear(D, 64).double()
net = nn.ModuleList([emb, norm, moe, head])
replicated = [p for n, p in net.named_parameters() if ".w." not in n]
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3, foreach=True)
torch.manual_seed(77 + RANK)
draw = torch.distributions.Beta(2.5, 4.0)

times = []
tick = time.perf_counter()
for _ in range(STEPS):
    ids = torch.randint(64, (B, S))
    share = draw.sample()
    code = torch.rand(B * S) < share
    table = torch.rand(B * S) < 0.2
    prose_expert = torch.tensor(KINDS["prose"])[torch.randint(6, (B * S,))]
    table_expert = torch.randint(E, (B * S,))
    code_expert = 4 + ids.flatten() % 2
    want = torch.where(code, code_expert, torch.where(table, table_expert, prose_expert))
    if ROUTE == "hash":
        want = (torch.arange(B * S) * 5 + RANK) % E
    x = emb(ids).flatten(0, 1)
    for layer_norm, layer in zip(norm, moe, strict=True):
        x = layer(layer_norm(x), want)
    loss = nn.functional.cross_entropy(head(x.double()), ids.flatten())
    loss.backward()
    for dtype in (torch.float32, torch.float64):
        group = [p for p in replicated if p.dtype == dtype]
        flat = torch.cat([p.grad.flatten() for p in group])
        dist.all_reduce(flat)
        flat /= WORLD
        at = 0
        for p in group:
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
    opt.step()
    opt.zero_grad()
    tock = time.perf_counter()
    times.append(tock - tick)
    tick = tock

dist.all_reduce(rows)
if RANK == 0 and os.environ.get("CLINIC_STEP_TIMES"):
    with open(os.environ["CLINIC_STEP_TIMES"], "w") as f:  # noqa: PTH123
        json.dump({"seconds": times, "samples": B * WORLD, "loss": loss.item(), "rows": rows.tolist()}, f)
dist.destroy_process_group()
