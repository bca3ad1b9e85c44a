"""Train a model with data parallelism: DDP, or gradients that the script averages itself.

torchrun --nproc-per-node 2 train.py --model vision
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext

import torch
import torch.distributed as dist
from loop import Clock, Habits, add_habits, arguments, start
from models import CLASSES, MODELS, Pictures, Texts, next_token_loss
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def parse() -> argparse.Namespace:
    parser = arguments(__doc__)
    add_habits(parser)
    parser.add_argument("--model", choices=tuple(MODELS), default="vision")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--vocabulary", type=int, default=500)
    parser.add_argument("--length", default="64", help="of sequences; LOW:HIGH by chance, or of each rank as 64,64,96")
    parser.add_argument("--side", type=int, default=32, help="of pictures")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--decode-passes", type=int, default=0)
    parser.add_argument("--far-disk", default="none:0", metavar="RANK:MS", help="ms for a picture; `all` for all ranks")
    parser.add_argument("--tokenize", type=int, default=0, metavar="WORDS", help="of a document")
    parser.add_argument("--tokenize-when", choices=("step", "start"), default="step")
    parser.add_argument("--reduce", choices=("ddp", "each", "flat"), default="ddp")
    parser.add_argument("--bucket-mb", type=float)
    parser.add_argument("--find-unused", choices=("yes", "no"), default="no")
    parser.add_argument("--anomaly", choices=("yes", "no"), default="no")
    parser.add_argument("--passes", type=int, default=1, help="whose gradients are accumulated")
    parser.add_argument("--sync", choices=("every", "last"), default="last", help="passes that reduce gradients")
    parser.add_argument("--optimizer", choices=("own", "loop", "fused", "sgd"), default="fused")
    parser.add_argument("--recompute", choices=("yes", "no"), default="no")
    parser.add_argument("--history", choices=("graphs", "numbers"), default="numbers")
    parser.add_argument("--histograms-every", type=int, default=0)
    parser.add_argument("--sample-every", type=int, default=0, help="steps between texts that the model writes")
    return parser.parse_args()


class OwnAdam:
    """Adam as in the paper, a parameter after the other."""

    def __init__(self, parameters: Iterator[nn.Parameter], lr: float) -> None:
        self._parameters, self._lr, self._steps = list(parameters), lr, 0
        self._means = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self._parameters]

    @torch.no_grad()
    def step(self) -> None:
        self._steps += 1
        for parameter, mean, square in zip(self._parameters, self._means, self._squares, strict=True):
            mean.mul_(0.9).add_(parameter.grad, alpha=0.1)
            square.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
            scale = (square / (1 - 0.999**self._steps)).sqrt() + 1e-8
            parameter.sub_(self._lr * (mean / (1 - 0.9**self._steps)) / scale + self._lr * 0.01 * parameter)

    def zero_grad(self, set_to_none: bool = False) -> None:
        for parameter in self._parameters:
            parameter.grad = None if set_to_none else parameter.grad.zero_()


def reduce_by_hand(model: nn.Module, how: str) -> None:
    gradients = [parameter.grad for parameter in model.parameters()]
    if how == "each":
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient.div_(dist.get_world_size())
        return
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


class Batches:
    """The batches of a rank."""

    def __init__(self, asked: argparse.Namespace, rank: int, folder: str) -> None:
        self._asked, self._rank, self._number = asked, rank, 0
        self._chance = torch.Generator().manual_seed(asked.seed * 100 + rank)
        self._texts = Texts(asked.vocabulary, asked.tokenize)
        ahead = 8 if asked.tokenize and asked.tokenize_when == "start" else 0
        self._tokens = [self._texts.tokenize(number, asked.batch) for number in range(ahead)]
        if asked.model == "vision":
            pictures = Pictures(folder, asked, rank)
            self._pictures = iter(DataLoader(pictures, asked.batch, num_workers=asked.workers))

    def next(self) -> Tensor:
        asked, chance = self._asked, self._chance
        self._number += 1
        if asked.model == "vision":
            return next(self._pictures)
        if asked.model == "adapters":
            return torch.randn(asked.batch, asked.width, generator=chance)
        if self._tokens:
            return self._tokens[self._number % len(self._tokens)]
        if asked.tokenize:
            return self._texts.tokenize(self._number, asked.batch)
        length = self._length()
        if asked.model == "speech":
            return torch.randn(asked.batch, length, 40, generator=chance)
        return torch.randint(asked.vocabulary, (asked.batch, length + 1), generator=chance)

    def _length(self) -> int:
        asked = self._asked
        if ":" in asked.length:
            low, high = map(int, asked.length.split(":"))
            return int(torch.randint(low, high + 1, (1,), generator=self._chance))
        lengths = list(map(int, asked.length.split(",")))
        return lengths[self._rank % len(lengths)]


class Trainer:
    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self.model: nn.Module = MODELS[asked.model](asked)
        if asked.reduce == "ddp":
            self.model = DistributedDataParallel(
                self.model,
                bucket_cap_mb=asked.bucket_mb,
                find_unused_parameters=asked.find_unused == "yes",
                gradient_as_bucket_view=True,
            )
        self._optimizer = self._make_optimizer()
        self._history: list[object] = []

    def _make_optimizer(self) -> OwnAdam | torch.optim.Optimizer:
        if self._asked.optimizer == "own":
            return OwnAdam(self.model.parameters(), 1e-4)
        if self._asked.optimizer == "sgd":
            return torch.optim.SGD(self.model.parameters(), lr=1e-4, fused=True)
        is_fused = self._asked.optimizer == "fused"
        return torch.optim.AdamW(self.model.parameters(), lr=1e-4, foreach=False, fused=is_fused)

    def step(self, number: int, batches: list[Tensor]) -> Tensor:
        asked, model = self._asked, self.model
        for place, batch in enumerate(batches, 1):
            is_held = asked.sync == "last" and place < len(batches) and isinstance(model, DistributedDataParallel)
            with model.no_sync() if is_held else nullcontext():
                loss = self._loss(batch)
                loss.backward(retain_graph=asked.history == "graphs")
        if asked.reduce != "ddp":
            reduce_by_hand(model, asked.reduce)
        if asked.histograms_every and number % asked.histograms_every == 0:
            self._draw_histograms()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=False)
        self._history.append(loss if asked.history == "graphs" else loss.item())
        if asked.sample_every and number % asked.sample_every == 0:
            self._write_text()
        return loss

    def _loss(self, batch: Tensor) -> Tensor:
        if self._asked.model == "language":
            return next_token_loss(self.model, batch)
        return cross_entropy(self.model(batch), torch.arange(len(batch)) % CLASSES)

    def _draw_histograms(self) -> None:
        """Count gradients by their first digit, in Python."""
        for parameter in self.model.parameters():
            counts: dict[str, int] = {}
            for value in parameter.grad.flatten()[:4000].tolist():
                digit = f"{abs(value):.0e}"[0]
                counts[digit] = counts.get(digit, 0) + 1

    def _write_text(self) -> None:
        model = getattr(self.model, "module", self.model)
        tokens = torch.zeros(4, 1, dtype=torch.long)
        with torch.no_grad():
            for _ in range(24):
                tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(2)], 1)


def main() -> None:
    asked = parse()
    rank = start(asked)
    torch.autograd.set_detect_anomaly(asked.anomaly == "yes")
    trainer = Trainer(asked)
    with tempfile.TemporaryDirectory() as folder:
        batches = Batches(asked, rank, folder)
        habits = Habits(asked, trainer.model, folder)
        clock = Clock(asked.batch * asked.passes * dist.get_world_size())
        for number in range(1, asked.steps + 1):
            some = [batches.next() for _ in range(asked.passes)]
            loss = trainer.step(number, some)
            habits.after_step(number, loss, some[0])
            clock.step()
        habits.close()
    clock.close()


if __name__ == "__main__":
    main()
