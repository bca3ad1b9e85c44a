"""DDP: a convolutional network on images that loader workers prepare."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BATCH = 24


class Images(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = torch.randn(3, 32, 32, generator=torch.Generator().manual_seed(index))
        return image.flip(-1) if index % 2 else image, index % 10


def block(inputs, outputs):
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    images = Images(args.steps * BATCH * dist.get_world_size())
    sampler = DistributedSampler(images)
    loader = DataLoader(images, BATCH, sampler=sampler, num_workers=1, persistent_workers=True, prefetch_factor=4)
    layers = [block(3, 32), block(32, 64), block(64, 64), block(64, 128), nn.Flatten(), nn.Linear(512, 10)]
    model = DistributedDataParallel(nn.Sequential(*layers), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
    for step, (image, label) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
