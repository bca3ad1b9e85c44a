"""A recommender: embeddings and a tower over them, trained with DDP on a log of what users did.

torchrun --nproc-per-node 2 ranking.py --raw all --workers 2
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime
from itertools import cycle, islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from device import OnDevice
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

Example = tuple[Tensor, Tensor]


def parse(line: str, rows: int) -> Example:
    """`2026-03-01T12:00:07 item=17 action=view; ...`: the items, and whether the last one was bought."""
    items, action = [], ""
    for event in line.split("; "):
        when, item, action = event.split(" ")
        hour = datetime.strptime(f"{when}+0000", "%Y-%m-%dT%H:%M:%S%z").hour
        items.append((int(item.partition("=")[2]) * 24 + hour) % rows)
    return torch.tensor(items), torch.tensor(float(action.endswith("buy")))


class Log(IterableDataset[Example]):
    """Lines of users; each worker takes its share. Without `is_raw` they were parsed in advance."""

    def __init__(self, rows: int, events: int, is_raw: bool) -> None:
        self._rows = rows
        self._lines = [
            "; ".join(
                f"2026-03-{day % 28 + 1:02}T{user % 24:02}:{day % 60:02}:{user % 60:02} item={user * 31 + day * 7}"
                f" action={'buy' if (user + day) % 3 == 0 else 'view'}"
                for day in range(events)
            )
            for user in range(96)
        ]
        self._parsed = None if is_raw else [parse(line, rows) for line in self._lines]

    def __iter__(self) -> Iterator[Example]:
        worker = get_worker_info()
        first, apart = (worker.id, worker.num_workers) if worker else (0, 1)
        for user in islice(cycle(range(len(self._lines))), first, None, apart):
            yield self._parsed[user] if self._parsed else parse(self._lines[user], self._rows)


class Ranker(nn.Module):
    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.items = nn.EmbeddingBag(asked.rows, asked.width)
        layer_ms = asked.user_ms / asked.layers
        self.tower = nn.Sequential(
            *(
                nn.Sequential(OnDevice(layer_ms), nn.Linear(asked.width, asked.width), nn.ReLU())
                for _ in range(asked.layers)
            )
        )
        self.score = nn.Linear(asked.width, 1)

    def forward(self, items: Tensor) -> Tensor:
        return self.score(self.tower(self.items(items))).squeeze(1)


class Quality:
    """Precision and recall at many thresholds over the last predictions."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._seen = [(0.001 * (number % 1000), number % 3 == 0) for number in range(kept)]

    def add(self, scores: Tensor, bought: Tensor) -> None:
        self._seen += zip(scores.sigmoid().tolist(), (bought > 0).tolist(), strict=True)
        self._seen = self._seen[-self._kept :]

    def curve(self) -> list[tuple[float, float]]:
        points = []
        for percent in range(100):
            right = wrong = missed = 0
            for score, is_bought in self._seen:
                if score >= 0.01 * percent:
                    right, wrong = right + is_bought, wrong + (not is_bought)
                else:
                    missed += is_bought
            points.append((right / max(1, right + wrong), right / max(1, right + missed)))
        return points


def common_folder() -> Path:
    """Of all ranks, made by the first."""
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    return Path(folder[0])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=34)
    parser.add_argument("--rows", type=int, default=2_000, help="of embeddings")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--user-ms", type=float, default=1.8, help="of a forward pass; backward takes twice that")
    parser.add_argument("--events", type=int, default=20, help="of a user")
    parser.add_argument("--raw", default="none", help="whose logs are text: all, none or a rank")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--passes", type=int, default=1, help="whose gradients make a step")
    parser.add_argument("--sync", choices=("every", "last"), default="every", help="after which passes")
    parser.add_argument("--quality-every", type=int, default=0)
    parser.add_argument("--quality-kept", type=int, default=4_000)
    parser.add_argument("--save-every", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Ranker(asked), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    log = Log(asked.rows, asked.events, asked.raw in ("all", str(dist.get_rank())))
    loader = iter(DataLoader(log, batch_size=asked.batch, num_workers=asked.workers))
    quality = Quality(asked.quality_kept)
    folder = common_folder()
    for number in range(asked.steps):
        for left in reversed(range(asked.passes)):
            items, bought = next(loader)
            model.require_backward_grad_sync = asked.sync == "every" or not left
            scores = model(items)
            binary_cross_entropy_with_logits(scores, bought).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        if asked.quality_every and (number + 1) % asked.quality_every == 0:
            quality.add(scores.detach(), bought)
            quality.curve()
        if asked.save_every and (number + 1) % asked.save_every == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            dcp.save(state, checkpoint_id=folder / str(number % 2))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
