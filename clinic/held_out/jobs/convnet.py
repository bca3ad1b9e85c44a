"""A residual convnet: alone, with DDP, or with gradients that hooks or the script reduce.

torchrun --nproc-per-node 2 convnet.py --reduce ddp
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from device import OnDevice
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.nn.functional import cross_entropy, relu
from torch.nn.parallel import DistributedDataParallel

CLASSES = 10


class Residual(nn.Module):
    def __init__(self, channels: int, image_ms: float) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(4, channels)
        self.device = OnDevice(image_ms)

    def forward(self, value: Tensor) -> Tensor:
        return value + relu(self.norm(self.convolution(self.device(value))))


class ConvNet(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, asked.channels, 3, padding=1)
        self.blocks = nn.Sequential(
            *(Residual(asked.channels, asked.image_ms / asked.blocks) for _ in range(asked.blocks))
        )
        self.head = nn.Linear(asked.channels, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def reduce_when_ready(model: nn.Module) -> None:
    """Each gradient is averaged as soon as backward has it."""

    def average(parameter: nn.Parameter) -> None:
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(dist.get_world_size())

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)


def reduce_pieces(model: nn.Module, count: int) -> None:
    gradients = [parameter.grad for parameter in model.parameters()]
    size = -(-len(gradients) // count)
    for start in range(0, len(gradients), size):
        piece = gradients[start : start + size]
        flat = _flatten_dense_tensors(piece)
        dist.all_reduce(flat)
        flat.div_(dist.get_world_size())
        torch._foreach_copy_(piece, list(_unflatten_dense_tensors(flat, piece)))


class Watch:
    """What blocks put out, to look at after training."""

    def __init__(self, model: ConvNet, kept: str) -> None:
        self.seen: list[Tensor | float] = []
        self._kept = kept
        for block in model.blocks:
            block.register_forward_hook(self._see)

    def _see(self, _block: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.seen.append(output if self._kept == "maps" else output.detach().mean().item())


def images(asked: argparse.Namespace, rank: int) -> Iterator[tuple[Tensor, Tensor]]:
    chance = torch.Generator().manual_seed(rank)
    for _ in range(asked.steps):
        yield (
            torch.randn(asked.batch, 3, asked.side, asked.side, generator=chance),
            torch.randint(CLASSES, (asked.batch,), generator=chance),
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--side", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--image-ms", type=float, default=7, help="on a device; 0 computes on the CPU alone")
    parser.add_argument("--reduce", choices=("ddp", "hooks", "pieces"), default="ddp")
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--adam", choices=("loop", "fused"), default="fused")
    parser.add_argument("--save-memory", choices=("yes", "no"), default="no")
    parser.add_argument("--watch", choices=("maps", "means", "nothing"), default="nothing")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    is_parallel, rank = "RANK" in os.environ, int(os.environ.get("RANK", "0"))
    if is_parallel:
        dist.init_process_group("gloo")
    network = ConvNet(asked)
    watch = Watch(network, asked.watch) if asked.watch != "nothing" else None
    if asked.save_memory == "yes":
        apply_activation_checkpointing(network, check_fn=lambda module: isinstance(module, Residual))
    model: nn.Module = network
    if is_parallel and asked.reduce == "ddp":
        model = DistributedDataParallel(network, bucket_cap_mb=asked.bucket_mb, gradient_as_bucket_view=True)
    elif is_parallel and asked.reduce == "hooks":
        reduce_when_ready(network)
    fused = asked.adam == "fused"
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, amsgrad=True, foreach=False, fused=fused)
    for batch, classes in images(asked, rank):
        optimizer.zero_grad(set_to_none=False)
        cross_entropy(model(batch), classes).backward()
        if asked.reduce == "pieces":
            reduce_pieces(model, 3)
        optimizer.step()
    if watch:
        print(len(watch.seen), "outputs were seen")
    if is_parallel:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
