"""Four ranks that meet at a barrier after the backward pass, in which rank 2 takes 200 ms longer."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

LATE, DELAY, STEPS = 2, 0.2, 60


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    if dist.get_rank() == LATE:
        model[0].register_full_backward_hook(lambda *_: time.sleep(DELAY))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in torch.utils.data.DataLoader(torch.randn(8 * STEPS, 64), batch_size=8):
        model(batch).square().mean().backward()
        dist.barrier()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(DELAY / 2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
