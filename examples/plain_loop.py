"""A loop of one's own, recorded through the API: which data is waited for, and where a step ends, is said in the loop.

python examples/plain_loop.py --run RUN && lostflops ingest RUN/capture -o RUN
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import lostflops

WIDTH, BATCH, PARTS = 256, 1024, 2


def batches(count: int, seconds: float) -> Iterator[Tensor]:
    """Any iterable will do; nothing here is a DataLoader that hooks could find."""
    for _ in range(count):
        time.sleep(seconds)
        yield torch.randn(BATCH, WIDTH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default="run", help="folder of the run")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--slow-loader", type=float, default=0.0, metavar="MS", help="time that a batch takes to load")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.ReLU(), nn.Linear(8 * WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with lostflops.record(options.run) as recording:
        for step, batch in enumerate(recording.steps(batches(options.steps, options.slow_loader / 1000))):
            for part in batch.chunk(PARTS):  # two updates per batch: only the loop knows that they are one step
                loss = (model(part) - part.flip(1)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if (step + 1) % 10 == 0:
                print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
