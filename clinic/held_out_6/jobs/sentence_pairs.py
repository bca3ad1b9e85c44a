"""Entailment of sentence pairs, padded to the longest of a batch; lengths vary from batch to batch."""

import argparse
from dataclasses import dataclass

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, DistributedSampler


@dataclass
class Settings:
    steps: int = 64
    words: int = 2500
    width: int = 128
    batch: int = 12


class Pairs(Dataset):
    def __init__(self, settings, count=2400):
        generator = torch.Generator().manual_seed(2)
        lengths = torch.randint(24, 49, (count,), generator=generator).tolist()
        self.pairs = [torch.randint(1, settings.words, (length,), generator=generator) for length in lengths]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        return self.pairs[index], index % 3


def collate(samples):
    texts, labels = zip(*samples, strict=True)
    return pad_sequence(texts, batch_first=True), torch.tensor(labels)


class PairClassifier(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.words = nn.Embedding(settings.words, settings.width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(settings.width, 4, 512, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(settings.width, 3)

    def forward(self, text):
        return self.out(self.body(self.words(text), src_key_padding_mask=text == 0)[:, 0])


def main(settings):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    pairs = Pairs(settings)
    sampler = DistributedSampler(pairs, shuffle=True, drop_last=True)
    loader = DataLoader(pairs, settings.batch, sampler=sampler, collate_fn=collate, drop_last=True)
    model = DDP(PairClassifier(settings))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    watch, number, epoch = Stopwatch(settings.batch), 0, 0
    while number < settings.steps:
        sampler.set_epoch(epoch)
        for text, label in loader:
            loss = nn.functional.cross_entropy(model(text), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.lap()
            number += 1
            if number == settings.steps:
                break
        epoch += 1
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    main(Settings(**vars(parser.parse_args())))
