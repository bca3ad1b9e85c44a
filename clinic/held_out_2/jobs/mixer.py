"""An MLP-mixer of image patches: alone, with DDP, or averaged by the script.

torchrun --nproc-per-node 2 mixer.py --reduce ddp
"""

from __future__ import annotations

import argparse
import os
import tempfile
import zlib
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from accelerator import Accelerated
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint_sequential
from torch.utils.data import DataLoader, Dataset

PIXELS, CLASSES = 48, 20


class Archive(Dataset[tuple[Tensor, int]]):
    """Compressed scans, of which an image is a small part: all of one is inflated to read it."""

    def __init__(self, count: int, patches: int, scan_kb: int) -> None:
        self._count, self._bytes = count, 4 * patches * PIXELS
        self._patches = patches
        chance = torch.Generator().manual_seed(0)
        size = max(1024 * scan_kb, self._bytes)
        pixels = torch.randint(8, (size // 4,), generator=chance).float()
        self._scan = zlib.compress(pixels.numpy().tobytes(), 1)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        pixels = bytearray(zlib.decompress(self._scan)[: self._bytes])
        return torch.frombuffer(pixels, dtype=torch.float32).view(self._patches, PIXELS), number % CLASSES


def perceptron(width: int, inner: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


class Mixing(nn.Module):
    """Between patches, then between channels."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.device = Accelerated(asked.image_ms / asked.blocks)
        self.first, self.second = nn.LayerNorm(asked.width), nn.LayerNorm(asked.width)
        self.patches = perceptron(asked.patches, 2 * asked.patches)
        self.channels = perceptron(asked.width, 2 * asked.width)

    def forward(self, value: Tensor) -> Tensor:
        value = self.device(value)
        value = value + self.patches(self.first(value).transpose(1, 2)).transpose(1, 2)
        return value + self.channels(self.second(value))


class Mixer(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self._segments = asked.segments
        self.stem = nn.Linear(PIXELS, asked.width)
        self.blocks = nn.Sequential(*(Mixing(asked) for _ in range(asked.blocks)))
        self.head = nn.Linear(asked.width, CLASSES)
        self.register_buffer("bank", torch.zeros(asked.bank_mb, 250_000))

    def cap(self, factor: float) -> None:
        """The power of the device, in the upper half of the blocks."""
        for block in self.blocks[len(self.blocks) // 2 :]:
            block.device.ms *= factor

    def forward(self, images: Tensor) -> Tensor:
        value = self.stem(images)
        if self._segments:
            value = checkpoint_sequential(self.blocks, self._segments, value, use_reentrant=False)
        else:
            value = self.blocks(value)
        return self.head(value.mean(1))


def gather_gradients(model: nn.Module) -> None:
    """All ranks get the gradients of all, one parameter after the other."""
    for parameter in model.parameters():
        there = [torch.empty_like(parameter.grad) for _ in range(dist.get_world_size())]
        dist.all_gather(there, parameter.grad)
        torch.mean(torch.stack(there), 0, out=parameter.grad)


def average_weights(model: nn.Module, pieces: int) -> None:
    """Each rank has taken its own step."""
    weights = [parameter.detach() for parameter in model.parameters()]
    size = -(-len(weights) // pieces)
    for start in range(0, len(weights), size):
        some = weights[start : start + size]
        flat = torch.cat([weight.flatten() for weight in some])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for weight, mean in zip(some, flat.split([weight.numel() for weight in some]), strict=True):
            weight.copy_(mean.view_as(weight))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--patches", type=int, default=8)
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--image-ms", type=float, default=3.5, help="on a device; 0 computes on the CPU alone")
    parser.add_argument("--capped", default="-1:1", help="RANK:FACTOR, whose device lacks power")
    parser.add_argument("--scan-kb", type=int, default=0, help="that are inflated for an image")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--reduce", choices=("ddp", "gather", "weights"), default="ddp")
    parser.add_argument("--bucket-mb", type=float, help="as PyTorch has it where there is none")
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--sync", choices=("every", "last"), default="last", help="after which passes")
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--segments", type=int, default=0, help="that backward computes again")
    parser.add_argument("--bank-mb", type=int, default=0, help="of features that are kept")
    parser.add_argument("--save-every", type=int, default=0)
    return parser.parse_args()


class Training:
    def __init__(self, asked: argparse.Namespace, rank: int, is_parallel: bool) -> None:
        self._asked, self._rank = asked, rank
        self._network = Mixer(asked)
        capped, factor = asked.capped.split(":")
        if int(capped) == rank:
            self._network.cap(float(factor))
        self._model: nn.Module = self._network
        if is_parallel and asked.reduce == "ddp":
            self._model = DistributedDataParallel(
                self._network, bucket_cap_mb=asked.bucket_mb, gradient_as_bucket_view=True, broadcast_buffers=False
            )
        kind = torch.optim.AdamW if asked.optimizer == "adam" else torch.optim.SGD
        self._optimizer = kind(self._model.parameters(), lr=1e-6, fused=True)

    def step(self, passes: list[tuple[Tensor, Tensor]]) -> None:
        asked, model = self._asked, self._model
        for number, (images, classes) in enumerate(passes, 1):
            is_held = asked.sync == "last" and number < len(passes) and isinstance(model, DistributedDataParallel)
            with model.no_sync() if is_held else nullcontext():
                cross_entropy(model(images), classes).backward()
        if asked.reduce == "gather":
            gather_gradients(model)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=False)
        if asked.reduce == "weights":
            average_weights(model, 3)

    def save(self, folder: Path) -> None:
        """By the first rank alone."""
        if self._rank == 0:
            torch.save({"model": self._network.state_dict(), "steps": self._optimizer.state_dict()}, folder / "last.pt")


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    is_parallel, rank = "RANK" in os.environ, int(os.environ.get("RANK", "0"))
    if is_parallel:
        dist.init_process_group("gloo")
    training = Training(asked, rank, is_parallel)
    archive = Archive(asked.steps * asked.passes * asked.batch, asked.patches, asked.scan_kb)
    batches = iter(DataLoader(archive, batch_size=asked.batch, num_workers=asked.workers))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, asked.steps + 1):
            training.step([next(batches) for _ in range(asked.passes)])
            if asked.save_every and number % asked.save_every == 0:
                training.save(Path(folder))
    if is_parallel:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
