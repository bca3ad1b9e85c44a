"""Contrastive learning: the embeddings of all ranks are gathered; an average of the weights is kept."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

BATCH = 256


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 128))
        self.text = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 128))

    def forward(self, image, text):
        return nn.functional.normalize(self.image(image), dim=1), nn.functional.normalize(self.text(text), dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Towers())
    average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    torch.manual_seed(1 + dist.get_rank())
    for step in range(args.steps):
        shared = torch.randn(BATCH, 256)
        image, text = model(torch.cat([shared, torch.randn(BATCH, 256)], 1), shared)
        scores = image @ torch.cat(all_gather(text)).T / 0.1
        target = torch.arange(BATCH) + BATCH * dist.get_rank()
        loss = nn.functional.cross_entropy(scores, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(model.module)
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
