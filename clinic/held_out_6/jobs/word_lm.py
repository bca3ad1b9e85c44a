"""Word-level language model with a GRU and truncated backpropagation through time."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH, SPAN, WORDS = 20, 20, 2000


class WordModel(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.decode = nn.Linear(width, WORDS)
        self.decode.weight = self.embed.weight

    def forward(self, words, state):
        hidden, state = self.gru(self.embed(words), state)
        return self.decode(hidden), state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    corpus = torch.randint(WORDS, (BATCH, 40_000), generator=torch.Generator().manual_seed(dist.get_rank()))
    model = DDP(WordModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
    state = torch.zeros(2, BATCH, 192)
    watch = Stopwatch(BATCH)
    for number in range(args.steps):
        start = number * SPAN % (corpus.shape[1] - SPAN - 1)
        words, following = corpus[:, start : start + SPAN], corpus[:, start + 1 : start + SPAN + 1]
        logits, state = model(words, state.detach())
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
