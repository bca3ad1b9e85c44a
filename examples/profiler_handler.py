"""A loop with torch.profiler, whose traces lie ready for Lostflops: one file per rank and window.

python examples/profiler_handler.py --run RUN && lostflops ingest RUN/capture -o RUN
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.profiler import profile, schedule

import lostflops

WIDTH, BATCH = 256, 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", default="run", help="folder of the run")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.ReLU(), nn.Linear(8 * WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(
        schedule=schedule(wait=5, warmup=2, active=3, repeat=2),
        on_trace_ready=lostflops.trace_handler(options.run),
        record_shapes=True,
    ) as profiler:
        for step in range(options.steps):
            batch = torch.randn(BATCH, WIDTH)
            loss = (model(batch) - batch.flip(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
            if (step + 1) % 10 == 0:
                print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
