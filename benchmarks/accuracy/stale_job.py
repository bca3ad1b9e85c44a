"""The job of job.py with a parameter server, the last rank, in the place of all-reduces: one rank of it.

A worker sends its gradients and gets parameters back. The server keeps the clock: it answers a worker that has done
`staleness` steps more than the slowest only when that one has caught up.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch.distributed as dist
from job import WIDTH, Model, arguments, train
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import lostflops

RATE = 1e-6


def serve(asked: argparse.Namespace) -> None:
    workers = dist.get_world_size() - 1
    parameters = parameters_to_vector(Model(asked).parameters()).detach()
    gradients = torch.empty_like(parameters)
    clock = [0] * workers
    waiting: set[int] = set()
    for _ in range(workers * asked.steps):
        worker = dist.recv(gradients)
        parameters -= RATE * gradients
        clock[worker] += 1
        waiting.add(worker)
        for ready in [each for each in waiting if clock[each] - min(clock) <= asked.staleness]:
            waiting.discard(ready)
            dist.send(parameters, ready)


def work(asked: argparse.Namespace) -> Iterator[None]:
    model = Model(asked)
    server = dist.get_world_size() - 1
    batch = torch.ones(1, WIDTH)
    for _ in range(asked.steps):
        model(batch).sum().backward()
        vector = torch.cat([each.grad.flatten() for each in model.parameters()])
        dist.send(vector, server)
        dist.recv(vector, server)
        vector_to_parameters(vector, model.parameters())
        model.zero_grad(set_to_none=False)
        lostflops.step()
        yield


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if dist.get_rank() == dist.get_world_size() - 1:
        serve(asked)
    else:
        train(asked, work(asked))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
