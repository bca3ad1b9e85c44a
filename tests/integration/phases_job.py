"""A loop of reinforcement learning over gloo: rollout, reward and train, each marked by an annotation.

    torchrun --nproc-per-node 2 tests/integration/phases_job.py FOLDER

Each rank writes the start and the stop of its phases to FOLDER/phases<rank>.json, as Unix time in ns.
"""

import json
import sys
import time
from pathlib import Path

STEPS = 10
NAMES = ("rollout", "reward", "train")


def main() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    marked = []

    def multiply(seconds: float) -> None:
        until = time.perf_counter() + seconds
        with torch.no_grad():
            while time.perf_counter() < until:
                model.module(torch.ones(64, 256))

    def learn() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(64, 256)).sum().backward()
        optimizer.step()

    for _ in range(STEPS):
        for name, work in zip(NAMES, (lambda: multiply(0.06), lambda: time.sleep(0.03), learn), strict=True):
            with torch.profiler.record_function(f"phase:{name}"):
                start = time.time_ns()
                work()
                marked.append((name, start, time.time_ns()))
    Path(sys.argv[1], f"phases{dist.get_rank()}.json").write_text(json.dumps(marked))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
