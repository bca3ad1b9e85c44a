"""Knowledge distillation: a student learns from the soft labels of a wider teacher."""

import argparse
from itertools import islice

import torch
import torch.distributed as dist
import torch.nn.functional as F
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def mlp(width, depth, classes=20, inputs=256):
    layers = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def stream(seed, batch):
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.randn(batch, 256, generator=generator)
        yield x, (x[:, :20] + 0.1).argmax(dim=1)


class Distiller(nn.Module):
    def __init__(self, teacher, student, temperature=3.0):
        super().__init__()
        self.teacher = [teacher]  # a list, so that it is not a submodule which the optimizer sees
        self.student = student
        self.temperature = temperature

    def forward(self, x, y, frozen):
        with torch.set_grad_enabled(not frozen):
            soft = self.teacher[0](x)
        logits = self.student(x)
        t = self.temperature
        return F.cross_entropy(logits, y) + t * t * F.kl_div(
            F.log_softmax(logits / t, -1), F.log_softmax(soft / t, -1), log_target=True, reduction="batchmean"
        )


def main(steps, fixed, batch=160):
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    teacher, student = mlp(512, 3), mlp(256, 4)
    model = DistributedDataParallel(Distiller(teacher.eval(), student))
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    watch = Stopwatch(batch)
    for x, y in islice(stream(dist.get_rank(), batch), steps):
        optimizer.zero_grad()
        model(x, y, fixed).backward()
        optimizer.step()
        schedule.step()
        watch.lap()
    watch.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    main(**vars(parser.parse_args()))
