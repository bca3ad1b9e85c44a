"""DDP: a small causal transformer on synthetic tokens that come through a DataLoader.

torchrun --nproc-per-node 2 examples/ddp_transformer.py
torchrun --nproc-per-node 2 examples/ddp_transformer.py --slow-loader 200    # each batch takes 200 ms to load
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCABULARY, LENGTH, BATCH, WIDTH, LAYERS = 1000, 64, 8, 128, 3


class Tokens(Dataset[tuple[Tensor, Tensor]]):
    """Sequences of a random walk over the vocabulary: sample i is the same on every rank and in every run."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(self.seconds)
        walk = torch.randint(-3, 4, (LENGTH + 1,), generator=torch.Generator().manual_seed(index)).cumsum(0)
        tokens = (walk + index) % VOCABULARY
        return tokens[:-1], tokens[1:]


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        hidden = self.tokens(tokens) + self.places(torch.arange(LENGTH))
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.head(hidden)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--slow-loader", type=float, default=0.0, metavar="MS", help="time that a batch takes to load")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Tokens(options.steps * BATCH * dist.get_world_size(), options.slow_loader / 1000 / BATCH)
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data, seed=0))
    model = DistributedDataParallel(Transformer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (tokens, targets) in enumerate(loader):
        loss = cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
