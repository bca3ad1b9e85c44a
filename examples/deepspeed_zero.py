"""DeepSpeed's ZeRO: `--stage` 1, 2 or 3, two microbatches per update.

torchrun --nproc-per-node 2 examples/deepspeed_zero.py --stage 3
"""

from __future__ import annotations

import argparse

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

WIDTH, LAYERS, BATCH, MICROBATCHES = 256, 4, 64, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--stage", type=int, choices=(1, 2, 3), default=3)
    options = parser.parse_args()

    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(LAYERS)]
    model = nn.Sequential(*layers)
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        config={
            "train_micro_batch_size_per_gpu": BATCH,
            "gradient_accumulation_steps": MICROBATCHES,
            "zero_optimization": {"stage": options.stage},
            "zero_allow_untested_optimizer": True,
            "steps_per_print": 1_000_000,
        },
    )
    batches = torch.Generator().manual_seed(dist.get_rank())
    for step in range(options.steps):
        for _ in range(MICROBATCHES):
            batch = torch.randn(BATCH, WIDTH, generator=batches)
            loss = (engine(batch) - batch.flip(1)).square().mean()
            engine.backward(loss)
            engine.step()
        if dist.get_rank() == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
