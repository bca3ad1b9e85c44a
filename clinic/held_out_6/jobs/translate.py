"""Sequence to sequence with an encoder and a decoder of LSTMs and attention."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Seq2Seq(nn.Module):
    def __init__(self, words=1500, width=192):
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(2 * width, words)

    def forward(self, source, target):
        memory, state = self.encoder(self.source(source))
        hidden, _ = self.decoder(self.target(target), state)
        looked = torch.softmax(hidden @ memory.transpose(1, 2), dim=-1) @ memory
        return self.out(torch.cat([hidden, looked], dim=-1))


def same_weights(model):
    """Ranks must not drift apart."""
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(10)
    net = Seq2Seq()
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(12)
    for _ in range(args.steps):
        source = torch.randint(1500, (12, 14), generator=generator)
        target = source.flip(1)
        logits = model(source, target.roll(1, 1))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if not args.fixed:
            same_weights(net)
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
