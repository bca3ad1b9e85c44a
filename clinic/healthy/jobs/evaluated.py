"""A classifier that is evaluated and saved every 32 steps."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, BATCH, EVERY = 256, 512, 32


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=128)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    folder = tempfile.TemporaryDirectory()
    count = BATCH * 16 * dist.get_world_size()
    features = torch.randn(count, WIDTH)
    data = TensorDataset(features, features[:, :10].argmax(1))
    held_back = torch.randn(BATCH, WIDTH)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=None, sampler=torch.utils.data.BatchSampler(sampler, BATCH, drop_last=True))
    layers = [nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=True)
    step = 0
    while step < args.steps:
        sampler.set_epoch(step)
        for batch, label in loader:
            loss = nn.functional.cross_entropy(model(batch), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % EVERY == 0:
                model.eval()
                with torch.no_grad():
                    right = (model(held_back).argmax(1) == held_back[:, :10].argmax(1)).float().mean()
                dist.all_reduce(right)
                model.train()
                if dist.get_rank() == 0:
                    torch.save(model.module.state_dict(), Path(folder.name) / "model.pt")
                    print(f"step {step}: {right.item() / dist.get_world_size():.1%} right", flush=True)
            if step == args.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
