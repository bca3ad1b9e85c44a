"""Train residual layers in a pipeline of ranks with a schedule of torch.

torchrun --nproc-per-node 2 pipe.py --layers 4,4 --microbatches 8
"""

from __future__ import annotations

import torch
from common import Stopwatch, join, make_optimizer, make_parser
from residual import make_stage
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.functional import mse_loss

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--layers", default="4,4", help="of each rank")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--schedule", choices=tuple(SCHEDULES), default="1f1b")
    asked = parser.parse_args()
    rank, world = join(asked)
    module = make_stage(int(asked.layers.split(",")[rank]), asked.width, asked.farm_ms)
    stage = PipelineStage(module, rank, world, torch.device("cpu"))
    schedule = SCHEDULES[asked.schedule](stage, asked.microbatches, loss_fn=mse_loss)
    optimizer = make_optimizer("fused", module)
    chance = torch.Generator().manual_seed(asked.seed)
    watch = Stopwatch(asked.batch)
    for _ in range(asked.steps):
        waves = torch.randn(asked.batch, asked.length, asked.width, generator=chance)
        losses: list[Tensor] = []
        if rank == 0:
            schedule.step(waves)
        elif rank == world - 1:
            schedule.step(target=waves.roll(1, 1), losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        watch.lap()
    watch.finish()


if __name__ == "__main__":
    main()
