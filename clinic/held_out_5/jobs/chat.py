"""Fine-tune a chat model with sparse feed-forwards: one expert a rank, one expert a token, a router that learns.

torchrun --nproc-per-node 4 chat.py
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

HIDDEN, TOKENS, VOCAB = 64, 960, 128


@torch.library.custom_op("cluster::mlp", mutates_args=())
def cluster_mlp(x: torch.Tensor, us: int) -> torch.Tensor:
    time.sleep(x.shape[0] * us / 1e6)
    return x.clone()


def _mlp_setup(ctx, inputs, output):
    ctx.us = inputs[1]


cluster_mlp.register_autograd(lambda ctx, g: (cluster_mlp(g, ctx.us * 2), None), setup_context=_mlp_setup)


class _ExpertParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, inp, out):
        ctx.inp, ctx.out = inp, out
        y = x.new_empty((sum(out), x.shape[1]))
        dist.all_to_all_single(y, x, out, inp)
        return y

    @staticmethod
    def backward(ctx, g):
        y = g.new_empty((sum(ctx.inp), g.shape[1]))
        dist.all_to_all_single(y, g.contiguous(), ctx.inp, ctx.out)
        return y, None, None


class TopOne(nn.Module):
    """Noisy routing with a loss that keeps it even."""

    def __init__(self, world):
        super().__init__()
        self.world = world
        self.router = nn.Linear(HIDDEN, world, bias=False)
        nn.init.normal_(self.router.weight, std=0.002)
        self.expert_up = nn.Linear(HIDDEN, 2 * HIDDEN)
        self.expert_down = nn.Linear(2 * HIDDEN, HIDDEN)
        self.sent = self.handled = 0

    def forward(self, x):
        logits = self.router(x)
        probs = logits.softmax(-1)
        choice = (logits + torch.randn_like(logits)).argmax(-1)
        order = choice.argsort()
        inp = torch.bincount(choice, minlength=self.world)
        balance = self.world * (inp / len(x) * probs.mean(0)).sum()
        out = torch.empty_like(inp)
        dist.all_to_all_single(out, inp)
        inp, out = inp.tolist(), out.tolist()
        y = _ExpertParallel.apply(x[order], inp, out)
        self.sent, self.handled = self.sent + sum(inp), self.handled + y.shape[0]
        y = self.expert_down(F.gelu(cluster_mlp(self.expert_up(y), 37)))
        y = _ExpertParallel.apply(y, out, inp)[order.argsort()]
        return x + probs.gather(1, choice[:, None]) * y, balance


class Chat(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.layers = nn.ModuleList([TopOne(world), TopOne(world)])
        self.norm = nn.RMSNorm(HIDDEN)

    def forward(self, ids):
        x, total = self.embed(ids), 0.0
        for layer in self.layers:
            x, balance = layer(x)
            total = total + balance
        return self.norm(x) @ self.embed.weight.t(), total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(21)
    chat = Chat(dist.get_world_size())
    ignored = [name for name, _ in chat.named_parameters() if "expert" in name]
    DDP._set_params_and_buffers_to_ignore_for_model(chat, ignored)  # noqa: SLF001
    model = DDP(chat, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(chat.parameters(), lr=2e-4, fused=True)
    torch.manual_seed(500 + dist.get_rank())
    laps = []
    for _ in range(steps):
        start = time.perf_counter()
        ids = torch.randint(VOCAB, (TOKENS,))
        logits, balance = model(ids)
        loss = F.cross_entropy(logits, (ids + 1) % VOCAB) + 0.01 * balance
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        laps.append(time.perf_counter() - start)
    rows = torch.tensor([sum(layer.sent for layer in chat.layers), sum(layer.handled for layer in chat.layers)])
    dist.all_reduce(rows)
    if dist.get_rank() == 0 and os.environ.get("CLINIC_STEP_TIMES"):
        record = {"seconds": laps, "samples": TOKENS * 4, "loss": loss.item(), "rows": rows.tolist()}
        Path(os.environ["CLINIC_STEP_TIMES"]).write_text(json.dumps(record))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
