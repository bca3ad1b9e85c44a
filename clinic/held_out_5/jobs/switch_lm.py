"""Train a Switch-style language model: one expert per rank in each block, DDP for everything else.

torchrun --nproc-per-node 4 switch_lm.py --steps 60
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

VOCAB, WIDTH, SEQ, BATCH = 96, 64, 32, 8
NS_PER_TOKEN = 90_000  # of the card that computes an expert, forward


@torch.library.custom_op("card::run", mutates_args=())
def card_run(rows: torch.Tensor, ns: int) -> torch.Tensor:
    """The card returns its rows after a time for each of them."""
    time.sleep(len(rows) * ns * 1e-9)
    return rows.clone()


card_run.register_fake(lambda rows, ns: torch.empty_like(rows))
card_run.register_autograd(
    lambda ctx, grad: (card_run(grad.contiguous(), 2 * ctx.ns), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "ns", inputs[1]),
)


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, send, recv):
        ctx.send, ctx.recv = send, recv
        out = x.new_empty(sum(recv), x.size(1))
        dist.all_to_all_single(out, x.contiguous(), recv, send)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(sum(ctx.send), grad.size(1))
        dist.all_to_all_single(out, grad.contiguous(), ctx.send, ctx.recv)
        return out, None, None


class SwitchFFN(nn.Module):
    def __init__(self, world, prior):
        super().__init__()
        self.world = world
        self.gate = nn.Linear(WIDTH, world)
        self.register_buffer("prior", prior)
        self.expert = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.sent = self.served = 0

    def forward(self, x):
        tokens = x.reshape(-1, WIDTH)
        # Spread scores make the argmax follow the prior; a flat prior spreads tokens evenly.
        noise = -torch.empty(len(tokens), self.world).exponential_().log()
        probs = torch.softmax(0.1 * self.gate(tokens) + self.prior + noise, dim=-1)
        weight, choice = probs.max(dim=-1)
        send = torch.bincount(choice, minlength=self.world)
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        order = torch.argsort(choice)
        send, recv = send.tolist(), recv.tolist()
        mine = AllToAll.apply(tokens[order], send, recv)
        self.sent += sum(send)
        self.served += len(mine)
        back = AllToAll.apply(card_run(self.expert(mine), NS_PER_TOKEN), recv, send)
        out = torch.zeros_like(tokens).index_copy(0, order, back)
        return x + (out * weight[:, None]).view_as(x)


class SwitchLM(nn.Module):
    def __init__(self, world, depth, prior):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.attend = nn.ModuleList(nn.MultiheadAttention(WIDTH, 4, batch_first=True) for _ in range(depth))
        self.switch = nn.ModuleList(SwitchFFN(world, prior) for _ in range(depth))
        self.head = nn.Linear(WIDTH, VOCAB)
        self.register_buffer("mask", torch.triu(torch.ones(SEQ, SEQ, dtype=torch.bool), 1), persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        for attend, switch in zip(self.attend, self.switch, strict=True):
            x = x + attend(x, x, x, attn_mask=self.mask, need_weights=False)[0]
            x = switch(x)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--gate-prior", default="0,0,1.2,0", help="logit offsets of the experts")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    prior = torch.tensor([float(part) for part in args.gate_prior.split(",")])
    model = SwitchLM(world, 2, prior)
    local = [name for name, _ in model.named_parameters() if ".expert." in name]
    DDP._set_params_and_buffers_to_ignore_for_model(model, local)  # noqa: SLF001
    ddp = DDP(model)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    torch.manual_seed(1 + rank)

    seconds, began = [], time.perf_counter()
    for _ in range(args.steps):
        ids = torch.randint(VOCAB, (BATCH, SEQ + 1)) // 2 * 2
        logits = ddp(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        opt.step()
        opt.zero_grad()
        now = time.perf_counter()
        seconds.append(now - began)
        began = now

    totals = torch.tensor([sum(ffn.sent for ffn in model.switch), sum(ffn.served for ffn in model.switch)])
    dist.all_reduce(totals)
    out = os.environ.get("CLINIC_STEP_TIMES")
    if out and rank == 0:
        keys = {"seconds": seconds, "samples": BATCH * world, "loss": loss.item(), "rows": totals.tolist()}
        Path(out).write_text(json.dumps(keys))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
