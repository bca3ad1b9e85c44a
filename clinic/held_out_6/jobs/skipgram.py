"""Word vectors with negative samples; gradients of two tables are exchanged row by row that was used."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn

WORDS, WIDTH, BATCH, NEGATIVES = 20_000, 96, 1024, 8


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.center = nn.Embedding(WORDS, WIDTH, sparse=True)
        self.context = nn.Embedding(WORDS, WIDTH, sparse=True)

    def forward(self, center, context, negative):
        words = self.context(torch.cat([context.unsqueeze(1), negative], dim=1))
        scores = torch.einsum("bd,bnd->bn", self.center(center), words)
        return -(nn.functional.logsigmoid(scores[:, 0]).mean() + nn.functional.logsigmoid(-scores[:, 1:]).mean())


def exchange(parameter, world):
    """Gather rows and values of the sparse gradients of all ranks."""
    grad = parameter.grad
    rows, values = grad._indices().squeeze(0), grad._values() / world  # noqa: SLF001
    all_rows = rows.new_empty(world * len(rows))
    all_values = values.new_empty(world * len(rows), WIDTH)
    dist.all_gather_into_tensor(all_rows, rows)
    dist.all_gather_into_tensor(all_values, values)
    parameter.grad = torch.sparse_coo_tensor(all_rows.unsqueeze(0), all_values, grad.shape, check_invariants=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(0)
    model = SkipGram()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(dist.get_rank())
    watch = Stopwatch(BATCH)
    for _ in range(args.steps):
        center = torch.randint(WORDS, (BATCH,), generator=generator)
        context = (center + torch.randint(1, 6, (BATCH,), generator=generator)) % WORDS
        loss = model(center, context, torch.randint(WORDS, (BATCH, NEGATIVES), generator=generator))
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            exchange(parameter, world)
        optimizer.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
