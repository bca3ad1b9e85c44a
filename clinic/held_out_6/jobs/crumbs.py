"""A tabular network in two pipeline stages."""

import argparse
from dataclasses import dataclass

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


@dataclass
class Plan:
    features: int = 200
    width: int = 512
    depth: int = 6
    batch: int = 240
    microbatches: int = 4


def stage_module(plan, rank, world):
    torch.manual_seed(rank)
    per_stage = plan.depth // world
    layers = [nn.Linear(plan.features, plan.width)] if rank == 0 else []
    for _ in range(per_stage):
        layers += [nn.ReLU(), nn.Linear(plan.width, plan.width)]
    if rank == world - 1:
        layers.append(nn.Linear(plan.width, 1))
    return nn.Sequential(*layers)


class Training:
    def __init__(self, plan):
        self.plan = plan
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.module = stage_module(plan, self.rank, self.world)
        stage = PipelineStage(self.module, self.rank, self.world, torch.device("cpu"))
        self.schedule = ScheduleGPipe(stage, plan.microbatches, loss_fn=nn.functional.huber_loss)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=1e-3, momentum=0.9)
        self.generator = torch.Generator().manual_seed(1)

    def step(self):
        rows = torch.randn(self.plan.batch, self.plan.features, generator=self.generator)
        self.optimizer.zero_grad()
        if self.rank == 0:
            self.schedule.step(rows)
        else:
            self.schedule.step(target=rows.square().mean(dim=1, keepdim=True), losses=[])
        self.optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    training = Training(Plan(microbatches=4 if options.fixed else 12))
    watch = Stopwatch(training.plan.batch)
    for _ in range(options.steps):
        training.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()
