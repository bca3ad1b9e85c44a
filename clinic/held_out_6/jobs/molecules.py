"""A message-passing network on molecules, batched as one graph without edges between molecules."""

import argparse

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

GRAPHS, ATOMS, WIDTH, LAYERS = 20, 20, 160, 8


def molecules(generator):
    count = GRAPHS * ATOMS
    atoms = torch.randint(16, (count,), generator=generator)
    first = torch.arange(count)
    step = torch.randint(1, ATOMS, (count, 3), generator=generator)
    other = (first.unsqueeze(1) // ATOMS) * ATOMS + (first.unsqueeze(1) + step) % ATOMS
    source = torch.cat([first.repeat_interleave(3), other.flatten()])
    target = torch.cat([other.flatten(), first.repeat_interleave(3)])
    graph = first // ATOMS
    energy = torch.zeros(GRAPHS).index_add_(0, graph, atoms.float() / 16)
    return atoms, source, target, graph, energy


class Message(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.send = nn.Linear(width, width)
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x, source, target):
        gathered = torch.zeros_like(x).index_add_(0, target, self.send(x)[source])
        return x + self.update(torch.cat([x, gathered], dim=1))


class Readout(nn.Module):
    """Sum over the atoms of each molecule, weighted by a gate."""

    def __init__(self, width, *, scatter):
        super().__init__()
        self.gate = nn.Linear(width, 1)
        self.out = nn.Linear(width, 1)
        self.scatter = scatter

    def forward(self, x, graph):
        weighted = torch.sigmoid(self.gate(x)) * x
        if self.scatter:
            pooled = weighted.new_zeros(GRAPHS, x.shape[1]).index_add_(0, graph, weighted)
        else:
            pooled = []
            for one in range(GRAPHS):
                atoms = (graph == one).nonzero().squeeze(1)
                total = torch.zeros(x.shape[1])
                for atom in atoms.tolist():
                    total = total + weighted[atom]
                pooled.append(total)
            pooled = torch.stack(pooled)
        return self.out(pooled).squeeze(1)


class Network(nn.Module):
    def __init__(self, *, scatter):
        super().__init__()
        self.atoms = nn.Embedding(16, WIDTH)
        self.layers = nn.ModuleList(Message(WIDTH) for _ in range(LAYERS))
        self.readout = Readout(WIDTH, scatter=scatter)

    def forward(self, atoms, source, target, graph):
        x = self.atoms(atoms)
        for layer in self.layers:
            x = layer(x, source, target)
        return self.readout(x, graph)


def train(options):
    generator = torch.Generator().manual_seed(dist.get_rank())
    torch.manual_seed(0)
    model = DDP(Network(scatter=options.fixed))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    watch = Stopwatch(GRAPHS)
    for _ in range(options.steps):
        atoms, source, target, graph, energy = molecules(generator)
        predicted = model(atoms, source, target, graph)
        loss = nn.functional.l1_loss(predicted, energy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.lap()
    watch.save()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    dist.init_process_group("gloo")
    train(parser.parse_args())
    dist.destroy_process_group()
