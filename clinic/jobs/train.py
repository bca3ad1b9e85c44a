"""Data-parallel training with DDP.

torchrun --nproc-per-node 2 train.py --workers 2
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from network import Network
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler


class Pictures(Dataset[Tensor]):
    """Reading and decoding one takes its time."""

    def __init__(self, count: int, width: int, seconds: float, late_seconds: float, late_from: int) -> None:
        self._count, self._width, self._seconds = count, width, seconds
        self._late_seconds, self._late_from = late_seconds, late_from

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(self._late_seconds if index >= self._late_from else self._seconds)
        return torch.full((self._width,), index % 7 / 7)


class Batches(Sampler[list[int]]):
    """Batches of the sizes that are given, in turn."""

    def __init__(self, sizes: list[int], count: int) -> None:
        self._sizes, self._count = sizes, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for number in range(self._count):
            size = self._sizes[number % len(self._sizes)]
            yield list(range(start, start + size))
            start += size


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=160, help="of a layer; 500 is a megabyte")
    parser.add_argument("--heads", type=int, default=1, help="parameters of a layer")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rank-batch", help="batch of each rank, as 8,8,14; or random:LOW:HIGH")
    parser.add_argument("--sample-ms", type=float, default=3.5, help="of a forward pass; backward takes twice that")
    parser.add_argument("--slow", help="RANK:FACTOR, a slower device; RANK:FACTOR:STEP, slower with each step")
    parser.add_argument("--jitter", type=float, default=0, help="share by which a step's compute varies")
    parser.add_argument("--read-ms", type=float, default=0.2, help="of a picture")
    parser.add_argument("--far-disk", help="RANK:MS, whose pictures take that long")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--optimizer", choices=("sgd", "loop", "fused"), default="sgd", help="loop and fused are AdamW")
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--no-sync", action="store_true")
    parser.add_argument("--preview", help="RANK:COUNT, who renders so many samples as text at each step")
    parser.add_argument("--log-every", type=int, default=0)
    parser.add_argument("--log-values", type=int, default=12_000)
    parser.add_argument("--frozen-mb", type=int, default=0, help="parameters that are not trained")
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--metrics", type=int, default=0, help="how many are averaged over ranks")
    parser.add_argument("--metrics-every", type=int, default=1)
    parser.add_argument("--barrier", action="store_true")
    parser.add_argument("--begin", type=int, default=0, help="first step of --slow and --far-disk")
    parser.add_argument("--hang", help="RANK:STEP, who waits there for something that never comes")
    return parser.parse_args()


def loader(asked: argparse.Namespace) -> DataLoader[Tensor]:
    rank, count = dist.get_rank(), asked.steps * asked.accumulate
    sizes = [asked.batch]
    if asked.rank_batch and asked.rank_batch.startswith("random:"):
        low, high = map(int, asked.rank_batch.split(":")[1:])
        chance = random.Random(rank)
        sizes = [chance.randint(low, high) for _ in range(count)]
    elif asked.rank_batch:
        sizes = [int(asked.rank_batch.split(",")[rank])]
    read_ms = late_ms = asked.read_ms
    if asked.far_disk and int(asked.far_disk.split(":")[0]) == rank:
        late_ms = float(asked.far_disk.split(":")[1])
    begin = sum(sizes[number % len(sizes)] for number in range(asked.begin * asked.accumulate))
    pictures = Pictures(sum(sizes) * count, asked.width, 1e-3 * read_ms, 1e-3 * late_ms, begin)
    return DataLoader(pictures, batch_sampler=Batches(sizes, count), num_workers=asked.workers)


def optimizer_of(model: nn.Module, kind: str) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=1e-6)
    return torch.optim.AdamW(model.parameters(), lr=1e-6, foreach=False, fused=kind == "fused")


class Training:
    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self._asked, self._folder, self._rank = asked, folder, dist.get_rank()
        self._network = Network(asked.layers, asked.width, asked.sample_ms, asked.heads)
        self._network.frozen = nn.Parameter(torch.zeros(asked.frozen_mb, 250_000), requires_grad=False)
        self._aging = 1.0
        if not asked.begin:
            self._become_slow()
        self._usual = [block.seconds for block in self._network]
        self._chance = random.Random(self._rank)
        self.model = DistributedDataParallel(self._network, bucket_cap_mb=asked.bucket_mb, gradient_as_bucket_view=True)
        self.optimizer = optimizer_of(self.model, asked.optimizer)

    def _become_slow(self) -> None:
        if self._asked.slow:
            rank, factor, *aging = self._asked.slow.split(":")
            if int(rank) == self._rank:
                self._network.slow_down(float(factor))
                self._aging = float(aging[0]) if aging else 1.0

    def _wait_for_lock(self) -> None:
        threading.Event().wait(3600)

    def step(self, number: int, batches: list[Tensor]) -> None:
        if number and number == self._asked.begin:
            self._become_slow()
        if self._asked.hang == f"{self._rank}:{number}":
            self._wait_for_lock()
        self._network.slow_down(self._aging)
        if self._asked.jitter:
            factor = 1 + self._asked.jitter * (2 * self._chance.random() - 1)
            for block, usual in zip(self._network, self._usual, strict=True):
                block.seconds = usual * factor
        for batch in batches:
            is_held = self._asked.no_sync and batch is not batches[-1]
            with self.model.no_sync() if is_held else contextlib.nullcontext():
                output = self.model(batch)
                loss = output.square().mean()
                loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        self._after(number, output.detach(), loss.detach())

    def _after(self, number: int, output: Tensor, loss: Tensor) -> None:
        asked = self._asked
        if asked.metrics and number % asked.metrics_every == 0:
            self._measure(output, loss)
        if asked.barrier:
            dist.barrier()
        if asked.preview and int(asked.preview.split(":")[0]) == self._rank:
            self._preview(output, int(asked.preview.split(":")[1]))
        if asked.log_every and number % asked.log_every == 0:
            self._log(number, loss)
        if asked.save_every and number % asked.save_every == 0:
            self._save()

    def _measure(self, output: Tensor, loss: Tensor) -> None:
        values = {}
        for number in range(self._asked.metrics):
            value = (output > number / 10).float().mean() + loss
            dist.all_reduce(value)
            values[f"metric/{number}"] = value.item() / dist.get_world_size()

    def _preview(self, output: Tensor, count: int) -> None:
        rows = output[0, :40].tolist()
        lines = [" ".join(f"{value:+.6f}" for value in rows) for _ in range(count)]
        (self._folder / "preview.txt").write_text("\n".join(lines))

    def _log(self, number: int, loss: Tensor) -> None:
        """Loss and what the weights look like, as a line of JSON."""
        weights = torch.cat([block.heads[0].weight.flatten()[:2000] for block in self._network])
        values = weights[: self._asked.log_values].tolist()
        told = {"step": number, "loss": loss.item(), "weights": {f"w{i}": f"{w:.6e}" for i, w in enumerate(values)}}
        with (self._folder / f"log-{self._rank}.jsonl").open("a") as log:
            log.write(json.dumps(told, sort_keys=True, indent=1) + "\n")

    def _save(self) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, self._folder / f"checkpoint-{self._rank}.pt")


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as folder:
        training = Training(asked, Path(folder))
        batches: list[Tensor] = []
        number = 0
        for batch in loader(asked):
            batches.append(batch)
            if len(batches) == asked.accumulate:
                training.step(number, batches)
                batches, number = [], number + 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
