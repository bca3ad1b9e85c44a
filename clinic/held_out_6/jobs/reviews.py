"""Classify reviews: word pieces, an embedding and a small convolution over words."""

import argparse
import random
import re

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PIECES = ["a", "un", "re", "er", "ing", "ly", "est", "pro", "con", "ta", "mi", "so", "le", "ba", "no", "ti", "ka", "ru"]
WORD = re.compile(r"[a-z]+")


class Reviews(Dataset):
    def __init__(self, count, *, ready, seed=1):
        rng = random.Random(seed)
        words = ["".join(rng.choices(PIECES, k=rng.randint(2, 5))) for _ in range(2000)]
        self.texts = [" ".join(rng.choices(words, k=40)) for _ in range(count)]
        self.vocabulary = {piece: number + 1 for number, piece in enumerate(sorted(PIECES, key=len, reverse=True))}
        self.cache = [self.encode(text) for text in self.texts] if ready else None

    def encode(self, text):
        ids = []
        for word in WORD.findall(text.lower()):
            rest = word
            while rest:
                piece = next((one for one in self.vocabulary if rest.startswith(one)), rest[0])
                ids.append(self.vocabulary.get(piece, 0))
                rest = rest[len(piece) :]
        return ids[:128] + [0] * max(0, 128 - len(ids))

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        ids = self.cache[index] if self.cache else self.encode(self.texts[index])
        return torch.tensor(ids), index % 5


class TextCNN(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(32, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, 96, size, padding="same") for size in (3, 5))
        self.head = nn.Linear(2 * 96, 5)

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        return self.head(torch.cat([conv(x).relu().amax(dim=2) for conv in self.convs], dim=1))


class Learner:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(0)
        reviews = Reviews(1600, ready=args.fixed)
        self.loader = DataLoader(reviews, batch_size=24, sampler=DistributedSampler(reviews), drop_last=True)
        self.model = DDP(TextCNN())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def batches(self):
        epoch = 0
        while True:
            self.loader.sampler.set_epoch(epoch)
            yield from self.loader
            epoch += 1

    def learn(self):
        watch = Stopwatch(24)
        for _, (ids, stars) in zip(range(self.args.steps), self.batches(), strict=False):
            loss = nn.functional.cross_entropy(self.model(ids), stars)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            watch.lap()
        watch.save()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    dist.init_process_group("gloo")
    Learner(parser.parse_args()).learn()
    dist.destroy_process_group()
