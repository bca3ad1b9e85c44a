"""Mixture of experts: one expert a rank, tokens in even shares, dense parts reduced with one call."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_to_all_single
from torch.nn.parallel import DistributedDataParallel

WIDTH, TOKENS, LAYERS = 128, 768, 2


class Experts(nn.Module):
    """Each token goes to the expert that its router likes best, as long as that has room for it."""

    def __init__(self):
        super().__init__()
        self.world = dist.get_world_size()
        self.capacity = TOKENS // self.world
        self.router = nn.Linear(WIDTH, self.world, bias=False)

    def forward(self, x, expert):
        scores = self.router(x).softmax(-1)
        chosen = torch.stack([scores[:, other].topk(self.capacity).indices for other in range(self.world)])
        arrived = all_to_all_single(torch.empty_like(x), x[chosen.flatten()])
        returned = all_to_all_single(torch.empty_like(x), expert(arrived))
        weight = scores[chosen.flatten(), torch.arange(self.world).repeat_interleave(self.capacity)]
        return x.index_add(0, chosen.flatten(), returned * weight[:, None])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(Experts() for _ in range(LAYERS))
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, experts):
        x = self.first(x)
        for layer, expert in zip(self.layers, experts, strict=True):
            x = layer(x, expert)
        return self.last(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dense = DistributedDataParallel(Model(), static_graph=True)
    torch.manual_seed(1 + dist.get_rank())
    experts = nn.ModuleList(
        nn.Sequential(nn.Linear(WIDTH, 8 * WIDTH), nn.GELU(), nn.Linear(8 * WIDTH, WIDTH)) for _ in range(LAYERS)
    )
    optimizer = torch.optim.AdamW([*dense.parameters(), *experts.parameters()], lr=1e-4, fused=True)
    tokens = torch.randn(32, TOKENS, WIDTH)
    for step in range(args.steps):
        batch = tokens[step % len(tokens)]
        loss = nn.functional.mse_loss(dense(batch, experts), batch.tanh())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
