"""Memory made by hand: blocks as a test states them, with the events and totals that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lostflops.account.ledger.phases import PHASES
from lostflops.account.memory.blocks import BEFORE, Blocks, RankMemory
from lostflops.account.memory.owners import CODE, Owner


@dataclass(frozen=True)
class Block:
    """From `start` until `stop`; None where that was outside of the window."""

    owner: Owner
    bytes: int
    start: int | None = None
    stop: int | None = None
    module: str = ""
    op: str = ""
    line: str = ""
    phase: str = ""
    step: int = -1


def memory(
    *blocks: Block,
    rank: int = 0,
    device: str = "cpu",
    opened: int = 0,
    closed: int = 100,
    unknown: int = 0,
    reserved: Sequence[int] = (),
    notes: tuple[str, ...] = (),
) -> RankMemory:
    """Events are in order of time; at the same time allocations and frees are in the order of blocks.

    >>> made = memory(Block(Owner.PARAMETERS, 100), Block(Owner.ACTIVATIONS, 40, 10, 30), unknown=7)
    >>> made.base, made.total.tolist(), made.peak_bytes
    (107, [147, 107], 147)
    """
    edges = sorted(
        [(block.start, 2 * at) for at, block in enumerate(blocks) if block.start is not None]
        + [(block.stop, 2 * at + 1) for at, block in enumerate(blocks) if block.stop is not None]
    )
    place = {edge: event for event, (_, edge) in enumerate(edges)}
    sizes = [blocks[edge // 2].bytes * (-1 if edge % 2 else 1) for _, edge in edges]
    base = unknown + sum(block.bytes for block in blocks if block.start is None)
    texts = list(dict.fromkeys(["", *(text for one in blocks for text in (one.module, one.op, one.line))]))
    made = RankMemory(
        rank=rank,
        device=device,
        opened=opened,
        closed=closed,
        time=_column([time for time, _ in edges]),
        total=base + np.cumsum(_column(sizes)),
        base=base,
        unknown=unknown,
        reserved=_column(reserved),
        blocks=Blocks(
            born=_column([BEFORE if one.start is None else place[2 * at] for at, one in enumerate(blocks)]),
            died=_column([len(edges) if one.stop is None else place[2 * at + 1] for at, one in enumerate(blocks)]),
            start=_column([opened if one.start is None else one.start for one in blocks]),
            stop=_column([closed if one.stop is None else one.stop for one in blocks]),
            bytes=_column([one.bytes for one in blocks]),
            address=_column([4096 * (at + 1) for at in range(len(blocks))]),
            owner=_column([CODE[one.owner] for one in blocks]),
            module=_column([texts.index(one.module) for one in blocks]),
            op=_column([texts.index(one.op) for one in blocks]),
            line=_column([texts.index(one.line) for one in blocks]),
            phase=_column([PHASES.index(one.phase) if one.phase else -1 for one in blocks]),
            step=_column([one.step for one in blocks]),
        ),
        texts=tuple(texts),
        notes=notes,
    )
    made.self_check()
    return made


def step(
    *, layers: int = 3, rank: int = 0, device: str = "cpu", weight: int = 300, saved: int = 400, batch: int = 64
) -> RankMemory:
    """One step of a stack of layers with Adam: a forward pass at 10, 20, ..., then backward, then the update.

    The peak is when the last layer's backward pass begins: parameters, state twice these, all that layers saved, the
    batch and a temporary of the size of what a layer saved (where a weight is smaller than that)."""
    made = []
    turn = 10 * (layers + 1)
    for layer in range(layers):
        name = f"layers.{layer}"
        forward, backward = 10 * (layer + 1), turn + 10 * (layers - layer)
        site = {"module": f"{name}.linear", "step": 5}
        made += [
            Block(Owner.PARAMETERS, weight, module=f"{name}.linear"),
            Block(Owner.OPTIMIZER, 2 * weight, module=f"{name}.linear"),
            Block(Owner.ACTIVATIONS, saved, forward, backward + 5, op="aten::linear", phase="forward", **site),
            Block(Owner.TEMPORARIES, saved, backward, backward + 4, op="aten::mm", phase="backward", **site),
            Block(Owner.GRADIENTS, weight, backward + 6, 2 * turn + 40, op="aten::t", phase="backward", **site),
        ]
    made.append(Block(Owner.BATCHES, batch, 5, 2 * turn + 41, phase="data", step=5))
    return memory(*made, rank=rank, device=device, closed=2 * turn + 50)


def _column(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)
