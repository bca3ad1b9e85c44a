"""A small transformer that is trained on the CPU: by itself, or by torchrun with DDP.

torchrun --nproc-per-node 2 text.py --batch 16
"""

from __future__ import annotations

import argparse
import gc
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset[Tensor]):
    """Lines of tokens, with an index of Python objects where it `is_indexed`."""

    def __init__(self, count: int, length: int, vocabulary: int, is_indexed: bool) -> None:
        chance = torch.Generator().manual_seed(0)
        self._tokens = torch.randint(vocabulary, (count, length + 1), generator=chance)
        self.index = [{"line": number, "tags": [str(number)]} for number in range(100_000)] if is_indexed else []

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, number: int) -> Tensor:
        return self._tokens[number]


class Transformer(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self._recomputes = asked.checkpoint
        self.tokens = nn.Embedding(asked.vocabulary, asked.width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(asked.width, 2, 4 * asked.width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(asked.layers)
        )
        self.head = nn.Linear(asked.width, asked.vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens)
        for layer in self.layers:
            hidden = checkpoint(layer, hidden, use_reentrant=False) if self._recomputes else layer(hidden)
        return self.head(hidden)


def optimizer_of(model: nn.Module, kind: str) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=kind == "foreach", fused=kind == "fused")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=500)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--optimizer", choices=("loop", "foreach", "fused"), default="fused")
    parser.add_argument("--checkpoint", action="store_true", help="activations are computed again in backward")
    parser.add_argument("--no-checkpoint", action="store_false", dest="checkpoint")
    parser.add_argument("--index", action="store_true", help="keep an index of the text in memory")
    parser.add_argument("--collect-every", type=int, default=0, help="collect garbage every so many steps")
    parser.add_argument("--keep-losses", choices=("tensors", "numbers"), default="numbers")
    asked = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    is_parallel = "RANK" in os.environ
    if is_parallel:
        dist.init_process_group("gloo")
    model: nn.Module = Transformer(asked)
    if is_parallel:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = optimizer_of(model, asked.optimizer)
    lines = Lines(asked.steps * asked.batch, asked.length, asked.vocabulary, asked.index)
    history: list[object] = []
    for number, tokens in enumerate(DataLoader(lines, batch_size=asked.batch)):
        output = model(tokens[:, :-1])
        loss = cross_entropy(output.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward(retain_graph=asked.keep_losses == "tensors")
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss, output) if asked.keep_losses == "tensors" else loss.item())
        if asked.collect_every and (number + 1) % asked.collect_every == 0:
            gc.collect()
    if is_parallel:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
