"""Tag the words of sentences; accuracy of every tag is kept while training."""

import argparse
from collections import Counter

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TAGS, WORDS, BATCH, LENGTH = 17, 3000, 24, 20


class Tagger(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(2 * width, TAGS)

    def forward(self, sentence):
        return self.tags(self.lstm(self.words(sentence))[0])


class Accuracy:
    def __init__(self):
        self.right, self.seen = Counter(), Counter()

    def update(self, predicted, wanted):
        for guess, tag in zip(predicted.flatten(), wanted.flatten(), strict=True):
            self.seen[tag.item()] += 1
            if guess.item() == tag.item():
                self.right[tag.item()] += 1


class CountedAccuracy(Accuracy):
    def __init__(self):
        super().__init__()
        self.right, self.seen = torch.zeros(TAGS, dtype=torch.long), torch.zeros(TAGS, dtype=torch.long)

    def update(self, predicted, wanted):
        self.seen += torch.bincount(wanted.flatten(), minlength=TAGS)
        self.right += torch.bincount(wanted[predicted == wanted], minlength=TAGS)


class Trainer:
    def __init__(self, steps, fixed):
        self.steps = steps
        self.accuracy = CountedAccuracy() if fixed else Accuracy()
        torch.manual_seed(2)
        self.model = DDP(Tagger())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.generator = torch.Generator().manual_seed(dist.get_rank())

    def train_step(self):
        sentence = torch.randint(WORDS, (BATCH, LENGTH), generator=self.generator)
        wanted = sentence % TAGS
        scores = self.model(sentence)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return scores.detach().argmax(-1), wanted

    def train(self):
        watch = Stopwatch(BATCH)
        for _ in range(self.steps):
            self.accuracy.update(*self.train_step())
            watch.lap()
        watch.save()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    dist.init_process_group("gloo")
    Trainer(**vars(parser.parse_args())).train()
    dist.destroy_process_group()
