"""Documents of unequal length, packed into one row of tokens per batch: a classifier of tokens with DDP.

torchrun --nproc-per-node 3 documents.py --shards strided
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from device import OnDevice
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

VOCABULARY = 1_000
PATIENCE = 60


class Tagger(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, asked.width)
        token_ms = 1e-3 * asked.token_us / asked.layers
        self.layers = nn.Sequential(
            *(
                nn.Sequential(OnDevice(token_ms), nn.Linear(asked.width, asked.width), nn.GELU())
                for _ in range(asked.layers)
            )
        )
        self.head = nn.Linear(asked.width, asked.classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.tokens(tokens)))


def shard(asked: argparse.Namespace, rank: int, ranks: int) -> list[Tensor]:
    """Of a corpus that is sorted by length: a stretch of it, or every so manieth document; then shuffled."""
    shortest, longest = map(int, asked.lengths.split(":"))
    each = asked.steps * asked.batch
    count = each * ranks
    lengths = [shortest + (longest - shortest) * place // count for place in range(count)]
    mine = lengths[rank * each : (rank + 1) * each] if asked.shards == "contiguous" else lengths[rank::ranks]
    random.Random(rank).shuffle(mine)
    chance = torch.Generator().manual_seed(rank)
    return [torch.randint(VOCABULARY, (length,), generator=chance) for length in mine]


class Lines:
    """The text itself, from which each step looks at some lines."""

    def __init__(self, count: int) -> None:
        self._lines = [f"line {number} of the corpus" for number in range(count)]

    def words(self, number: int, count: int) -> Counter[str]:
        start = number * count % (len(self._lines) - count)
        records = [{"words": line.split(), "at": start} for line in self._lines[start : start + count]]
        return Counter(word for record in records for word in record["words"])


def accuracy_of_classes(output: Tensor, truth: Tensor, classes: int) -> dict[int, float]:
    """Over the tokens of all ranks."""
    found, accuracy = output.argmax(1), {}
    for number in range(classes):
        is_it = truth == number
        counts = torch.stack([(found[is_it] == number).sum(), is_it.sum()])
        dist.all_reduce(counts)
        right, there = counts.tolist()
        accuracy[number] = right / max(1, there)
    return accuracy


@contextmanager
def pinned(asked: argparse.Namespace, rank: int) -> Iterator[None]:
    """Each rank on a core, which one of them shares with a program that has nothing to do with it."""
    if not asked.pin:
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    if asked.neighbour != rank:
        yield
        return
    spin = ["timeout", "-s", "KILL", str(PATIENCE), "sh", "-c", "while :; do :; done"]
    with subprocess.Popen(spin) as neighbour:
        try:
            yield
        finally:
            neighbour.terminate()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16, help="documents")
    parser.add_argument("--lengths", default="58:62", help="of the shortest and the longest document")
    parser.add_argument("--token-us", type=float, default=25, help="on a device; 0 computes on the CPU alone")
    parser.add_argument("--shards", choices=("contiguous", "strided"), default="strided")
    parser.add_argument("--accuracy-every", type=int, default=0)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--neighbour", type=int, default=-1, help="the rank whose core is busy")
    parser.add_argument("--lines", type=int, default=0, help="of text in memory")
    parser.add_argument("--freeze", choices=("imports", "text"), default="text", help="the last that is not collected")
    return parser.parse_args()


def load(asked: argparse.Namespace) -> Lines | None:
    """Garbage is collected early and often, to keep memory low."""
    if not asked.lines:
        return None
    if asked.freeze == "imports":
        gc.freeze()
    lines = Lines(asked.lines)
    if asked.freeze == "text":
        gc.freeze()
    gc.collect()
    gc.set_threshold(200, 3, 3)
    return lines


def train(asked: argparse.Namespace) -> None:
    rank = dist.get_rank()
    model = DistributedDataParallel(Tagger(asked), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    documents = shard(asked, rank, dist.get_world_size())
    lines = load(asked)
    for number, tokens in enumerate(DataLoader(documents, batch_size=asked.batch, collate_fn=torch.cat)):
        output, truth = model(tokens), tokens % asked.classes
        cross_entropy(output, truth).backward()
        optimizer.step()
        optimizer.zero_grad()
        if asked.accuracy_every and (number + 1) % asked.accuracy_every == 0:
            accuracy_of_classes(output.detach(), truth, asked.classes)
        if lines:
            lines.words(number, 2_500)


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    with pinned(asked, dist.get_rank()):
        train(asked)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
