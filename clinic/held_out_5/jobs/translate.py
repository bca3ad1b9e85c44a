"""Encoder and decoder with sparse layers: each rank keeps two experts of each layer, a token visits one.

torchrun --nproc-per-node 4 translate.py --decoder-mix 0.25,0.25,0.25,0.25
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd, wait_tensor
from torch.nn.functional import cross_entropy, one_hot, relu
from torch.nn.parallel import DistributedDataParallel

WORDS = 50
DIM = 48
LENGTH = 24
SENTENCES = 8


@torch.library.custom_op("engine::forward", mutates_args=())
def engine_forward(tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    time.sleep(200e-6 * tokens.size(0))
    return tokens @ weight


@torch.library.custom_op("engine::backward", mutates_args=())
def engine_backward(
    grad: torch.Tensor, tokens: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    time.sleep(400e-6 * tokens.size(0))
    return grad @ weight.t(), tokens.t() @ grad


engine_forward.register_autograd(
    lambda ctx, grad: engine_backward(grad.contiguous(), *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Sparse(nn.Module):
    """`mix` is the share of each rank's experts in what the router chooses before it has learned anything."""

    def __init__(self, mix):
        super().__init__()
        self.experts = nn.Parameter(torch.randn(2, DIM, DIM) / 10)
        self.router = nn.Linear(DIM, 2 * len(mix))
        self.register_buffer("mix", torch.tensor(mix).repeat_interleave(2).log())
        self.rows = [0, 0]

    def forward(self, x):
        tokens = x.flatten(0, -2)
        ranks = len(self.mix) // 2
        logits = self.router(tokens)
        uniform = torch.rand_like(logits).clamp_min(1e-9)
        pick = (self.mix + 0.05 * logits.detach() - (-uniform.log()).log()).argmax(1)
        strength = (logits.softmax(1) * one_hot(pick, 2 * ranks)).sum(1, keepdim=True)
        order = pick.argsort()
        leave = pick.bincount(minlength=2 * ranks)
        come = wait_tensor(all_to_all_single(leave, None, None, dist.group.WORLD)).view(ranks, 2)
        ins, outs = leave.view(ranks, 2).sum(1).tolist(), come.sum(1).tolist()
        visitors = all_to_all_single_autograd(tokens[order], outs, ins, dist.group.WORLD)
        pieces = visitors.split(come.flatten().tolist())
        first = engine_forward(torch.cat(pieces[::2]), self.experts[0]).split(come[:, 0].tolist())
        second = engine_forward(torch.cat(pieces[1::2]), self.experts[1]).split(come[:, 1].tolist())
        done = torch.cat([piece for both in zip(first, second, strict=True) for piece in both])
        self.rows[0] += len(tokens)
        self.rows[1] += len(done)
        home = all_to_all_single_autograd(relu(done), ins, outs, dist.group.WORLD)
        return x + (home[order.argsort()] * strength).view_as(x)


class Layer(nn.Module):
    def __init__(self, mix):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(DIM, DIM) for _ in range(3))
        self.norm = nn.LayerNorm(DIM)
        self.sparse = Sparse(mix)

    def forward(self, x, memory, causal):
        y = self.norm(x)
        seen = nn.functional.scaled_dot_product_attention(
            self.query(y), self.key(memory), self.value(memory), is_causal=causal
        )
        return self.sparse(x + seen)


class Translator(nn.Module):
    def __init__(self, even, mix):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, DIM), nn.Embedding(WORDS, DIM)
        self.encoder = nn.ModuleList([Layer(even)])
        self.decoder = nn.ModuleList([Layer(mix), Layer(even)])
        self.out = nn.Linear(DIM, WORDS)

    def forward(self, source, target):
        x, y = self.source(source), self.target(target)
        for layer in self.encoder:
            x = layer(x, x, False)
        for layer in self.decoder:
            y = layer(y, x, True)
        return self.out(y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--decoder-mix", default="0.48,0.02,0.02,0.48")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    even = [1 / dist.get_world_size()] * dist.get_world_size()
    translator = Translator(even, [float(share) for share in args.decoder_mix.split(",")])
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # noqa: SLF001
        translator, [name for name, _ in translator.named_parameters() if name.endswith("experts")]
    )
    model = DistributedDataParallel(translator, bucket_cap_mb=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    torch.manual_seed(1000 + rank)
    seconds = []
    last = time.perf_counter()
    for step in range(args.steps):
        source = torch.randint(WORDS, (SENTENCES, LENGTH))
        target = (source.flip(1) + 1) % WORDS
        loss = cross_entropy(model(source, target.roll(1, 1)).flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 20 == 19:
            print(f"step {step + 1}: {loss.item():.3f}", flush=True)
        seconds.append(time.perf_counter() - last)
        last += seconds[-1]
    rows = torch.tensor([part.rows for part in translator.modules() if isinstance(part, Sparse)]).sum(0)
    dist.all_reduce(rows)
    if rank == 0 and (path := os.environ.get("CLINIC_STEP_TIMES")):
        answer = {"seconds": seconds, "samples": 4 * SENTENCES, "loss": loss.item(), "rows": rows.tolist()}
        Path(path).write_text(json.dumps(answer))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
