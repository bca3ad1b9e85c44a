"""Accelerate: a loop with gradient accumulation.

lostflops run -- torchrun --nproc-per-node 2 examples/accelerate_loop.py
lostflops run -- accelerate launch --cpu examples/accelerate_loop.py    # on CPUs it starts one process
    python examples/accelerate_loop.py --tracker RUN            # the same from within, without `lostflops run`
"""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH, PARTS = 256, 256, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--tracker", metavar="RUN", help="record into RUN with Lostflops' tracker")
    options = parser.parse_args()

    set_seed(0)
    trackers = []
    if options.tracker:
        from lostflops.collect.frameworks.accelerate import LostflopsTracker

        trackers.append(LostflopsTracker(options.tracker))
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=PARTS, log_with=trackers or None)
    accelerator.init_trackers("example")
    model = nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.ReLU(), nn.Linear(8 * WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(options.steps * PARTS * BATCH * accelerator.num_processes, WIDTH))
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, BATCH))
    for index, (batch,) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = (model(batch) - batch.flip(1)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if (index + 1) % (10 * PARTS) == 0:
            accelerator.print(f"step {(index + 1) // PARTS}: loss {loss.item():.4f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
