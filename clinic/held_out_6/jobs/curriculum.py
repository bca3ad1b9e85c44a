"""Curriculum learning: harder examples come later, by a plan which is made from the difficulty of every example."""

import argparse
import random

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=64)
parser.add_argument("--fixed", action="store_true")
args = parser.parse_args()

EXAMPLES, BATCH, WIDTH = 20_000, 128, 320

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
inputs = torch.randn(EXAMPLES, WIDTH)
labels = (inputs[:, :8] > 0).long().sum(dim=1)
difficulty = (inputs[:, :8].abs().min(dim=1).values).neg().tolist()
order = sorted(range(EXAMPLES), key=difficulty.__getitem__)

model = DDP(nn.Sequential(nn.Linear(WIDTH, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 9)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()


def plan(number, chooser):
    """Return the examples of a step for all ranks, with what is known of each."""
    reach = max(BATCH * world, EXAMPLES * min(1, (number + 10) // 100 + 1) // 2)
    chosen = chooser.sample(order[:reach], BATCH * world)
    return [chosen[place * BATCH : (place + 1) * BATCH] for place in range(world)]


def catalog(number, picks):
    return [
        {"example": f"sample-{one:08d}", "index": one, "difficulty": difficulty[one], "step": number}
        for part in picks
        for one in part
    ]


def my_examples(number, chooser):
    if args.fixed:
        return plan(number, chooser)[rank]
    told = [None, None]
    if rank == 0:
        picks = plan(number, chooser)
        told = [picks, [catalog(number + ahead, picks) for ahead in range(8)]]
    dist.broadcast_object_list(told, src=0)
    return told[0][rank]


def main():
    chooser = random.Random(11)
    watch = Stopwatch(BATCH)
    for number in range(args.steps):
        mine = torch.tensor(my_examples(number, chooser))
        loss = criterion(model(inputs[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()
    if rank == 0:
        print(f"loss {loss.item():.3f}")


main()
dist.destroy_process_group()
