"""A character model: decoder-only, from scratch, in the way of a teaching script."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=64)
ap.add_argument("--fixed", action="store_true")
cli = ap.parse_args()

batch_size, block_size, n_embd, n_head, n_layer, vocab_size = 28, 48, 224, 2, 1, 65


class Head(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.key = nn.Linear(n_embd, size, bias=False)
        self.query = nn.Linear(n_embd, size, bias=False)
        self.value = nn.Linear(n_embd, size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)) == 0, persistent=False)

    def forward(self, x):
        k, q, v = self.key(x), self.query(x), self.value(x)
        wei = (q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5).masked_fill(self.tril, float("-inf"))
        return F.softmax(wei, dim=-1) @ v


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(Head(n_embd // n_head) for _ in range(n_head))
        self.proj = nn.Linear(n_embd, n_embd)
        self.ffwd = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd))
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)

    def forward(self, x):
        y = self.ln1(x)
        x = x + self.proj(torch.cat([h(y) for h in self.heads], dim=-1))
        return x + self.ffwd(self.ln2(x))


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, n_embd)
        self.pos = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos.weight
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        return F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))


dist.init_process_group("gloo")
torch.manual_seed(1337)
data = torch.randint(vocab_size, (100_000,))
torch.manual_seed(1337 + dist.get_rank())


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + block_size + 1] for i in ix])
    return x, y


torch.autograd.set_detect_anomaly(not cli.fixed)
model = DDP(LanguageModel(), broadcast_buffers=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
watch = Stopwatch(batch_size)
for _ in range(cli.steps):
    xb, yb = get_batch()
    loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    watch.lap()
watch.save()
dist.destroy_process_group()
