"""What PyTorch itself records: activations are its saved tensors, gradients the parameters', to the byte."""

import numpy as np
import pytest
from tests.ingest.test_modules import annotated

from lostflops.account.ledger.phases import PHASES
from lostflops.account.memory.owners import CODE, Owner
from lostflops.account.memory.read import memories
from lostflops.ingest import ingest
from lostflops.store.run import Run

torch = pytest.importorskip("torch")
ROWS, WIDTH, CLASSES = 64, 32, 10


def model_of(recompute):
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(3))
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x):
            for block in self.blocks:
                reentrant = {"use_reentrant": recompute == "reentrant", "preserve_rng_state": False}
                x = checkpoint(block, x, **reentrant) if recompute else block(x)
            return self.head(x)

    return Model()


def saved_bytes(model, x, y):
    """Distinct storages that autograd saves in a forward pass, but for parameters and the batch."""
    others = {tensor.untyped_storage().data_ptr() for tensor in (x, y, *model.parameters())}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()  # a checkpoint that is never computed again keeps its model for good
    model.zero_grad()
    return sum(size for address, size in found.items() if address not in others)


def train(model, microbatches, steps=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        with torch.profiler.record_function(f"ProfilerStep#{step}"):
            optimizer.zero_grad()
            for _ in range(microbatches):
                x, y = torch.randn(ROWS, WIDTH, requires_grad=True), torch.randint(CLASSES, (ROWS,))
                torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


@pytest.mark.parametrize(("recompute", "microbatches"), [("", 1), ("", 3), ("plain", 1), ("reentrant", 1)])
def test_activations_are_what_autograd_saves(tmp_path, recompute, microbatches):
    model = model_of(recompute)
    batch = torch.randn(ROWS, WIDTH, requires_grad=True), torch.randint(CLASSES, (ROWS,))
    saved = saved_bytes(model, *batch)
    annotated(torch, model)
    train(model, microbatches, steps=1)
    model.zero_grad()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        train(model, microbatches)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    ingest([tmp_path / "trace.json"], tmp_path / "run", workers=1)
    with Run.open(tmp_path / "run") as run:
        (found,) = memories(run)
    found.self_check()
    held = found.by_owner()
    in_forward = np.flatnonzero(found.blocks.phase == PHASES.index("forward"))
    until = found.blocks.born[in_forward].max()
    assert held[until + 1, CODE[Owner.ACTIVATIONS]] == pytest.approx(saved, abs=8)
    gradients = sum(parameter.nbytes for parameter in model.parameters()) + batch[0].nbytes
    assert held[:, CODE[Owner.GRADIENTS]].max() == gradients
    assert held[:, CODE[Owner.UNATTRIBUTED]].max() <= 16
