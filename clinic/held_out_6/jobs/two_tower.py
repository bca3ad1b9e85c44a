"""Two-tower retrieval: users and items meet in a dot product; the metrics of every step are gathered over ranks."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

USERS, ITEMS, BATCH = 4000, 6000, 256


class Tower(nn.Module):
    def __init__(self, rows, width=64):
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.net = nn.Sequential(
            nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, width)
        )

    def forward(self, ids):
        return F.normalize(self.net(self.table(ids)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = Tower(USERS)
        self.items = Tower(ITEMS)

    def forward(self, user, item):
        return self.users(user) @ self.items(item).T * 20


class Trainer:
    def __init__(self, options):
        self.options = options
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(7)
        self.model = DistributedDataParallel(TwoTower())
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.05)
        self.generator = torch.Generator().manual_seed(100 + self.rank)
        self.history = []

    def batch(self):
        user = torch.randint(USERS, (BATCH,), generator=self.generator)
        return user, (user * 7 + torch.randint(5, (BATCH,), generator=self.generator)) % ITEMS

    def summarize(self, scores, user, item):
        ranks = scores.argsort(dim=1, descending=True)
        hits = ranks[:, :10] == torch.arange(BATCH).unsqueeze(1)
        per_user = {
            "user": user.tolist(),
            "item": item.tolist(),
            "hit": hits.any(dim=1).tolist(),
            "top": ranks[:, :50].tolist(),
        }
        if self.options.fixed:
            total = hits.any(dim=1).float().mean()
            dist.all_reduce(total)
            self.history.append(total / self.world)
            return
        gathered = [None] * self.world
        dist.all_gather_object(gathered, per_user)
        self.history.append(sum(sum(one["hit"]) for one in gathered) / (BATCH * self.world))

    def step(self):
        user, item = self.batch()
        scores = self.model(user, item)
        loss = F.cross_entropy(scores, torch.arange(BATCH))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.summarize(scores.detach(), user, item)

    def fit(self):
        watch = Stopwatch(BATCH)
        for _ in range(self.options.steps):
            self.step()
            watch.lap()
        watch.save()
        if self.rank == 0:
            print("recall@10", float(self.history[-1]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    dist.init_process_group("gloo")
    Trainer(parser.parse_args()).fit()
    dist.destroy_process_group()
