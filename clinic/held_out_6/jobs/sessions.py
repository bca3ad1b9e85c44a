"""Next item in a shopping session, with negatives drawn by how popular an item is."""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ITEMS, SHOWN, BATCH, NEGATIVES, LENGTH = 400_000, 5000, 48, 64, 12


class Popularity:
    """Draws items in proportion to how often they are bought."""

    def __init__(self, seed, *, ready):
        self.rng = np.random.default_rng(seed)
        share = 1 / (np.arange(ITEMS) + 10.0)
        self.share = share / share.sum()
        self.total = np.cumsum(self.share) if ready else None

    def draw(self, count):
        if self.total is None:
            drawn = self.rng.choice(ITEMS, size=count, p=self.share)
        else:
            drawn = np.searchsorted(self.total, self.rng.random(count))
        return torch.from_numpy(drawn) % SHOWN


class SessionModel(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.items = nn.Embedding(SHOWN, width)
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, session, bought, negatives):
        state = self.gru(self.items(session))[0]
        good = (state * self.items(bought)).sum(-1)
        bad = state @ self.items(negatives).T
        return -nn.functional.logsigmoid(good).mean() - nn.functional.logsigmoid(-bad).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(14)
    popularity = Popularity(dist.get_rank(), ready=args.fixed)
    model = DDP(SessionModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    watch = Stopwatch(BATCH)
    for _ in range(args.steps):
        session = popularity.draw(BATCH * (LENGTH + 1)).view(BATCH, LENGTH + 1)
        negatives = popularity.draw(NEGATIVES)
        loss = model(session[:, :-1], session[:, 1:], negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
