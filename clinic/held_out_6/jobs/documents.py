"""Summaries of documents of very different lengths; several documents make one step."""

import argparse
import contextlib

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Reader(nn.Module):
    def __init__(self, words=800, width=128):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 512, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 64)

    def forward(self, document):
        return self.out(self.body(self.words(document)).mean(1))


def documents(generator):
    while True:
        length = (24, 40, 72, 136)[int(torch.randint(4, (), generator=generator))]
        yield torch.randint(800, (2, length), generator=generator)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=6)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = DDP(Reader())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    source = documents(torch.Generator().manual_seed(dist.get_rank()))
    watch = Stopwatch(2 * args.accumulate)
    for _ in range(args.steps):
        for micro in range(args.accumulate):
            document = next(source)
            with model.no_sync() if micro + 1 < args.accumulate else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(model(document), document[:, 0] % 64) / args.accumulate
                loss.backward()
            if not args.fixed:
                dist.barrier()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
