"""Memory of a small job at any batch size, whose peak is known in closed form."""

from tests.account.memory.made import Block, memory

from lostflops.account.memory.blocks import RankMemory
from lostflops.account.memory.owners import Owner

WEIGHT, SAVED, UPDATE, FEW = 1000, 7, 900, 3


def peak(batch: int) -> int:
    """The update is highest while the batch is small, the begin of the backward pass when it is large."""
    return 3 * WEIGHT + max(UPDATE + WEIGHT, 3 * SAVED * batch) + FEW * batch


def job(
    batch: int, *, extra: int = 0, device: str = "cpu", reserved: float = 0, rank: int = 0, steps: int = 2
) -> RankMemory:
    """Two layers save activations, backward needs as much as one of them, the update has temporaries. Bytes of `extra`
    are added to what backward needs."""
    blocks = [
        Block(Owner.PARAMETERS, WEIGHT),
        Block(Owner.OPTIMIZER, 2 * WEIGHT),
    ]
    for step in range(steps):
        at = 100 * step
        made = {"step": step}
        blocks += [
            Block(Owner.BATCHES, FEW * batch, at + 1, at + 90, phase="data", **made),
            Block(Owner.ACTIVATIONS, SAVED * batch, at + 10, at + 40, "a", "aten::mm", phase="forward", **made),
            Block(Owner.ACTIVATIONS, SAVED * batch, at + 20, at + 35, "b", "aten::mm", phase="forward", **made),
            Block(
                Owner.TEMPORARIES, SAVED * batch + extra, at + 30, at + 41, "b", "aten::mm", phase="backward", **made
            ),
            Block(Owner.GRADIENTS, WEIGHT, at + 42, at + 80, "a", "aten::t", phase="backward", **made),
            Block(Owner.TEMPORARIES, UPDATE, at + 60, at + 70, op="aten::mul", phase="optimizer", **made),
        ]
    made_memory = memory(*blocks, rank=rank, device=device, closed=100 * steps)
    if not reserved:
        return made_memory
    totals = [round(total * (1 + reserved)) for total in made_memory.total.tolist()]
    return memory(*blocks, rank=rank, device=device, closed=100 * steps, reserved=totals)
