"""Speech recognition in small: log-mel frames, a GRU and CTC. Clips have very different lengths."""

import argparse
from dataclasses import dataclass

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence


@dataclass
class Config:
    mels: int = 40
    hidden: int = 128
    letters: int = 29
    batch: int = 8
    clips: int = 4096
    lr: float = 3e-4
    seed: int = 1


class Clips(torch.utils.data.Dataset):
    def __init__(self, config):
        generator = torch.Generator().manual_seed(config.seed)
        self.config = config
        self.frames = (20 + 70 * torch.rand(config.clips, generator=generator) ** 2).int().tolist()

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        frames = self.frames[index]
        said = torch.randint(1, self.config.letters, (frames // 10,), generator=generator)
        return torch.randn(frames, self.config.mels, generator=generator), said


class LengthSampler(torch.utils.data.Sampler):
    """Clips of a similar length go together, so that little is padded."""

    def __init__(self, lengths, config, rank, world, *, interleave):
        order = sorted(range(len(lengths)), key=lambda one: lengths[one])
        batches = [order[start : start + config.batch] for start in range(0, len(order), config.batch)]
        pairs = len(batches) // world
        mine = batches[rank::world] if interleave else batches[rank * pairs : (rank + 1) * pairs]
        shuffled = torch.randperm(pairs, generator=torch.Generator().manual_seed(config.seed)).tolist()
        self.batches = [mine[one] for one in shuffled]

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def collate(clips):
    sounds, said = zip(*clips, strict=True)
    return (
        pad_sequence(sounds, batch_first=True),
        torch.tensor([len(one) for one in sounds]),
        torch.cat(said),
        torch.tensor([len(one) for one in said]),
    )


class Recognizer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.front = nn.Conv1d(config.mels, config.hidden, 5, padding=2)
        self.body = nn.GRU(config.hidden, config.hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * config.hidden, config.letters)

    def forward(self, sound):
        hidden = self.front(sound.transpose(1, 2)).relu().transpose(1, 2)
        return self.head(self.body(hidden)[0]).log_softmax(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    config = Config()
    dist.init_process_group("gloo")
    torch.manual_seed(config.seed)
    clips = Clips(config)
    sampler = LengthSampler(clips.frames, config, dist.get_rank(), dist.get_world_size(), interleave=args.fixed)
    loader = torch.utils.data.DataLoader(clips, batch_sampler=sampler, collate_fn=collate)
    model = DDP(Recognizer(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    ctc = nn.CTCLoss(zero_infinity=True)
    watch = Stopwatch(config.batch)
    for number, (sound, frames, said, letters) in enumerate(loader):
        if number == args.steps:
            break
        logits = model(sound)
        loss = ctc(logits.transpose(0, 1), said, frames, letters)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
