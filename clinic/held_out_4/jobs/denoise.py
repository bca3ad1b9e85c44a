"""Remove noise from pictures with a residual convolutional network (DDP).

torchrun --nproc-per-node 2 denoise.py --workers 2
"""

from __future__ import annotations

import argparse
import gzip
import io
import lzma
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import torch
import torch.distributed as dist
from common import Farm, Stopwatch, join, make_optimizer, make_parser
from torch import Tensor, nn
from torch.nn.functional import interpolate, mse_loss, silu
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

FILES = 6


class Residual(nn.Module):
    def __init__(self, width: int, farm_ms: float) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.farm = Farm(farm_ms)

    def forward(self, value: Tensor) -> Tensor:
        return value + self.farm(self.second(silu(self.first(self.norm(value)))))


class Denoiser(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, asked.width, 3, padding=1)
        self.blocks = nn.ModuleList(Residual(asked.width, asked.farm_ms) for _ in range(asked.blocks))
        self.tail = nn.Conv2d(asked.width, 3, 3, padding=1)
        self.rematerialize = asked.rematerialize

    def forward(self, pictures: Tensor) -> Tensor:
        value = self.head(pictures)
        for block in self.blocks:
            value = checkpoint(block, value, use_reentrant=False) if self.rematerialize else block(value)
        return self.tail(value)


class Archive(Dataset[Tensor]):
    """Pictures in compressed files, read from a store that may be far away."""

    def __init__(self, folder: Path, asked: argparse.Namespace, rank: int) -> None:
        self._paths = [folder / f"{rank}-{number}.xz" for number in range(FILES)]
        self._side, self._source, self._store_ms = asked.side, asked.source_side, asked.store_ms
        chance = torch.Generator().manual_seed(asked.seed + rank)
        for path in self._paths:
            raw = torch.randint(0, 64, (3, self._source, self._source), generator=chance, dtype=torch.uint8)
            path.write_bytes(lzma.compress(raw.numpy().tobytes(), preset=0))

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, number: int) -> Tensor:
        if self._store_ms:
            time.sleep(1e-3 * self._store_ms)
        raw = bytearray(lzma.decompress(self._paths[number % FILES].read_bytes()))
        picture = torch.frombuffer(raw, dtype=torch.uint8).view(1, 3, self._source, self._source).float() / 64
        picture = picture.flip(3) if number % 2 else picture
        return interpolate(picture, size=(self._side, self._side), mode="bilinear", antialias=True)[0]


def make_batches(asked: argparse.Namespace, folder: Path, rank: int) -> Generator[Tensor, None, None]:
    if asked.data == "archive":
        archive = Archive(folder, asked, rank)
        yield from DataLoader(archive, asked.batch, num_workers=asked.workers)
    chance = torch.Generator().manual_seed(asked.seed + rank)
    ready = [torch.rand(asked.batch, 3, asked.side, asked.side, generator=chance) for _ in range(4)]
    while True:
        yield from ready


def save(model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Write a checkpoint as small as it gets."""
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    path.write_bytes(gzip.compress(buffer.getvalue(), compresslevel=6))


def evaluate(model: nn.Module, pictures: Tensor, batches: int) -> float:
    model.eval()
    with torch.no_grad():
        errors = [mse_loss(model(pictures.roll(number, 2)), pictures) for number in range(batches)]
    model.train()
    return float(torch.stack(errors).mean())


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--side", type=int, default=48)
    parser.add_argument("--data", choices=("memory", "archive"), default="memory")
    parser.add_argument("--source-side", type=int, default=128, help="of pictures in the archive")
    parser.add_argument("--store-ms", type=float, default=0, help="until the store answers")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rematerialize", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--plain-kernels", type=int, default=-1, metavar="RANK", help="rank without oneDNN")
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--evaluate-every", type=int, default=0, help="on rank 0, with a barrier behind")
    parser.add_argument("--evaluate-batches", type=int, default=4)
    parser.add_argument("--optimizer", choices=("loop", "fused", "sgd"), default="fused")
    parser.add_argument("--bucket-mb", type=float, default=25)
    return parser.parse_args()


def main() -> None:
    asked = parse()
    rank, world = join(asked)
    if rank == asked.plain_kernels:
        torch.backends.mkldnn.set_flags(False)
    replica = Denoiser(asked)
    model = DistributedDataParallel(replica, bucket_cap_mb=asked.bucket_mb, gradient_as_bucket_view=True)
    optimizer = make_optimizer(asked.optimizer, model)
    with tempfile.TemporaryDirectory() as folder:
        batches = make_batches(asked, Path(folder), rank)
        watch = Stopwatch(asked.batch * world)
        for number in range(1, asked.steps + 1):
            clean = next(batches)
            noisy = clean + 0.1 * torch.randn_like(clean)
            mse_loss(model(noisy), clean).backward()
            optimizer.step()
            optimizer.zero_grad()
            if asked.save_every and number % asked.save_every == 0 and rank == 0:
                save(replica, optimizer, Path(folder) / "last.pt.gz")
            if asked.evaluate_every and number % asked.evaluate_every == 0:
                if rank == 0:
                    evaluate(replica, clean, asked.evaluate_batches)
                dist.barrier()
            watch.lap()
        batches.close()
    watch.finish()


if __name__ == "__main__":
    main()
