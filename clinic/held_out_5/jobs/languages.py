"""Pre-train on many languages with sparse layers; all ranks read the same language for a step, or a mix.

torchrun --nproc-per-node 4 languages.py --sampler mixed
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

LANGUAGES, WORDS, WIDTH = 8, 30, 56


@torch.library.custom_op("pool::process", mutates_args=())
def process(states: Tensor, seconds: float) -> Tensor:
    """A pool of accelerators processes the states of an expert."""
    time.sleep(seconds * states.shape[0])
    return states.clone()


process.register_autograd(
    lambda ctx, gradient: (process(gradient, 2 * ctx.seconds), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "seconds", inputs[1]),
)


class _Travel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, states: Tensor, splits: tuple[list[int], list[int]]) -> Tensor:
        ctx.splits = splits
        return travel(states, *splits)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return travel(gradient.contiguous(), *reversed(ctx.splits)), None


def travel(states: Tensor, away: list[int], home: list[int]) -> Tensor:
    landed = states.new_empty(sum(home), states.shape[1])
    dist.all_to_all_single(landed, states, output_split_sizes=home, input_split_sizes=away)
    return landed


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 64), nn.SiLU(), nn.Linear(64, WIDTH))

    def forward(self, states: Tensor) -> Tensor:
        return process(self.layers(states), 1e-4)


class LanguageLayer(nn.Module):
    """The best expert for a language is `language % ranks`, which more than half of its tokens get."""

    def __init__(self, ranks: int, expert: Expert) -> None:
        super().__init__()
        self.ranks, self.visits = ranks, torch.zeros(2, dtype=torch.long)
        self.mixing = nn.Linear(WIDTH, WIDTH)
        self.gate = nn.Linear(WIDTH, ranks)
        self.expert = [expert]  # out of reach of DDP

    def forward(self, states: Tensor, language: Tensor) -> Tensor:
        states = torch.tanh(self.mixing(states))
        strength = self.gate(states).softmax(1)
        anywhere = torch.randint(self.ranks, language.shape)
        choice = torch.where(torch.rand(len(language)) < 0.4, language % self.ranks, anywhere)
        order = choice.argsort()
        counts = choice.bincount(minlength=self.ranks)
        matrix = [torch.empty_like(counts) for _ in range(self.ranks)]
        dist.all_gather(matrix, counts)
        splits = counts.tolist(), torch.stack(matrix)[:, dist.get_rank()].tolist()
        guests = _Travel.apply(states[order], splits)
        self.visits += torch.tensor([sum(part) for part in splits])
        returned = _Travel.apply(self.expert[0](guests), splits[::-1])
        return states + strength.gather(1, choice[:, None]) * returned[order.argsort()]


class Reader(nn.Module):
    def __init__(self, ranks: int, experts: list[Expert]) -> None:
        super().__init__()
        self.words = nn.Embedding(LANGUAGES * WORDS, WIDTH)
        self.layers = nn.ModuleList(LanguageLayer(ranks, expert) for expert in experts)
        self.guess = nn.Linear(WIDTH, LANGUAGES * WORDS)

    def forward(self, words: Tensor, language: Tensor) -> Tensor:
        states = self.words(words)
        for layer in self.layers:
            states = layer(states, language)
        return self.guess(states)


def batches(sampler: str, tokens: int, rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    together = random.Random(2024)
    alone = torch.Generator().manual_seed(rank)
    while True:
        today = together.randrange(LANGUAGES)
        language = torch.arange(tokens) % LANGUAGES if sampler == "mixed" else torch.full((tokens,), today)
        yield torch.randint(WORDS, (tokens,), generator=alone) + WORDS * language, language


def train(steps: int, sampler: str, tokens: int) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(12)
    experts = [Expert() for _ in range(2)]
    model = DistributedDataParallel(Reader(ranks, experts))
    weights = [*model.parameters(), *(weight for expert in experts for weight in expert.parameters())]
    optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=True)
    torch.manual_seed(rank)
    source, seconds = batches(sampler, tokens, rank), []
    for _ in range(steps):
        began = time.perf_counter()
        words, language = next(source)
        loss = nn.functional.cross_entropy(model(words, language), words)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - began)
    visits = sum(layer.visits for layer in model.module.layers)
    dist.all_reduce(visits)
    if rank == 0 and "CLINIC_STEP_TIMES" in os.environ:
        result = {"seconds": seconds, "samples": ranks * tokens, "loss": loss.item(), "rows": visits.tolist()}
        Path(os.environ["CLINIC_STEP_TIMES"]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=224)
    parser.add_argument("--sampler", choices=("language", "mixed"), default="language")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(asked.steps, asked.sampler, asked.tokens)
    dist.destroy_process_group()
