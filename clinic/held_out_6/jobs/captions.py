"""Pictures and captions: a contrastive loss over the batches of all ranks."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def everyone(x):
    """Features of all ranks; own ones keep their gradient."""
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.detach().contiguous())
    parts[dist.get_rank()] = x
    return torch.cat(parts)


class Clip(nn.Module):
    def __init__(self, width=384, *, pool_first):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.look = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.words = nn.EmbeddingBag(3000, width, mode="mean")
        self.read = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.pool_first = pool_first

    def pictures(self, images):
        return self.patch(images).relu().flatten(2).transpose(1, 2)

    def forward(self, images, captions):
        grid = self.pictures(images)
        texts = everyone(self.read(self.words(captions)))
        seen = everyone(self.look(grid.mean(1))) if self.pool_first else self.look(everyone(grid).mean(1))
        logits = F.normalize(seen, dim=1) @ F.normalize(texts, dim=1).T * self.scale.exp()
        target = torch.arange(len(logits))
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(77)
    model = DDP(Clip(pool_first=args.fixed))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(args.batch)
    for _ in range(args.steps):
        images = torch.randn(args.batch, 3, 32, 32, generator=generator)
        captions = torch.randint(3000, (args.batch, 12), generator=generator)
        optimizer.zero_grad()
        model(images, captions).backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
