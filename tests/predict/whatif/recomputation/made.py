"""Memory of models whose every block is known: a forward pass, its backward pass, and the calls of modules in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lostflops.account.ledger.phases import BACKWARD, FORWARD
from lostflops.account.memory.blocks import BEFORE, Blocks, RankMemory
from lostflops.account.memory.owners import CODE, Owner
from lostflops.predict.whatif.recomputation.calls import ModuleCalls


@dataclass
class Tape:
    """Allocations and frees one after the other, each a microsecond after the one before."""

    changes: list[tuple[int, str]] = field(default_factory=list)
    blocks: dict[str, dict] = field(default_factory=dict)
    rows: list[dict] = field(default_factory=list)

    @property
    def now(self) -> int:
        """A time before the next event and after the last."""
        return 1000 * (len(self.changes) + 1) - 500

    def get(self, name: str, size: int, owner: Owner, phase: int, op: str = "") -> None:
        self.blocks[name] = {"bytes": size, "owner": owner, "phase": phase, "born": len(self.changes), "op": op or name}
        self.changes.append((size, name))

    def free(self, name: str) -> None:
        row = self.blocks.pop(name) | {"died": len(self.changes)}
        self.rows.append(row)
        self.changes.append((-row["bytes"], name))

    def memory(self, parameters: int = 100) -> RankMemory:
        count = len(self.changes)
        rows = [*self.rows, *(row | {"died": count} for row in self.blocks.values())]
        rows.append(
            {"bytes": parameters, "owner": Owner.PARAMETERS, "phase": -1, "born": BEFORE, "died": count, "op": ""}
        )
        texts = ("", *sorted({row["op"] for row in rows} - {""}))
        column = {name: np.array([row[name] for row in rows]) for name in ("born", "died", "bytes", "phase")}
        time = 1000 * np.arange(1, count + 1)
        edges = np.concatenate([[0], time, [1000 * (count + 1)]])
        none = np.zeros(len(rows), np.int64)
        blocks = Blocks(
            **column,
            start=edges[column["born"] + 1],
            stop=edges[column["died"] + 1],
            address=np.arange(len(rows)),
            owner=np.array([CODE[row["owner"]] for row in rows]),
            module=none,
            op=np.array([texts.index(row["op"]) for row in rows]),
            line=none,
            step=none,
        )
        total = parameters + np.cumsum([size for size, _ in self.changes])
        made = RankMemory(
            rank=0,
            device="cpu",
            opened=0,
            closed=int(edges[-1]),
            time=time,
            total=total,
            base=parameters,
            unknown=0,
            reserved=none[:0],
            blocks=blocks,
            texts=texts,
        )
        made.self_check()
        return made


@dataclass
class Layer:
    """`inner` are bytes that its ops keep, one after the other; `result` is kept until `what follows` let go of it, by
    the layer `itself`, or by `nobody` once the next layer ran. `passing` bytes are needed while it runs, `gradient`
    while its backward does; `weights` are bytes of gradients that stay."""

    name: str
    inner: Sequence[int] = ()
    result: int = 10
    passing: int = 0
    gradient: int = 0
    weights: int = 0
    ns: int = 1000
    parts: Sequence[Layer] = ()
    needed_by: str = "what follows"


def trained(layers: Sequence[Layer], steps: int = 1) -> tuple[RankMemory, ModuleCalls]:
    """A chain of layers, some of which have parts."""
    tape, calls = Tape(), list[tuple[str, int, dict[str, int]]]()
    for step in range(steps):
        tape.get("batch", 8, Owner.BATCHES, FORWARD)
        own: dict[str, tuple[int, dict[str, int]]] = {}
        for before, layer in zip([None, *layers], layers, strict=False):
            _forward(tape, own, layer)
            if before and before.needed_by == "nobody":
                tape.free(f"{before.name}:result")
        tape.get("loss", 4, Owner.ACTIVATIONS, FORWARD)
        tape.free("loss")
        for place in reversed(range(len(layers))):
            _backward(tape, own, layers[place])
        for name in [name for name in tape.blocks if name.startswith("grad:")]:
            tape.free(name)
        tape.free("batch")
        calls += [(name, step, times | {"ns": ns}) for name, (ns, times) in own.items()]
    return tape.memory(), _calls(calls, steps)


def _forward(tape: Tape, own: dict[str, tuple[int, dict[str, int]]], layer: Layer) -> None:
    times = {"start": tape.now}
    own[layer.name] = (layer.ns + sum(part.ns for part in layer.parts), times)
    for part in layer.parts:
        _forward(tape, own, part)
    for at, size in enumerate(layer.inner):
        tape.get(f"{layer.name}:{at}", size, Owner.ACTIVATIONS, FORWARD)
        if layer.passing:
            tape.get("passing", layer.passing, Owner.TEMPORARIES, FORWARD)
            tape.free("passing")
    tape.get(f"{layer.name}:result", layer.result, Owner.ACTIVATIONS, FORWARD)
    times |= {"stop": tape.now, "cut": tape.now}


def _backward(tape: Tape, own: dict[str, tuple[int, dict[str, int]]], layer: Layer) -> None:
    """What follows has let go of the result when a layer's own backward begins."""
    result = f"{layer.name}:result"
    if result in tape.blocks and layer.needed_by != "itself":
        tape.free(result)
    times = own[layer.name][1]
    times["back"] = tape.now
    if layer.gradient:
        tape.get(f"gradient:{layer.name}", layer.gradient, Owner.TEMPORARIES, BACKWARD)
    for name in (result, *(f"{layer.name}:{at}" for at in reversed(range(len(layer.inner))))):
        if name in tape.blocks:
            tape.free(name)
    for part in reversed(layer.parts):
        _backward(tape, own, part)
    if layer.gradient:
        tape.free(f"gradient:{layer.name}")
    if layer.weights:
        tape.get(f"grad:{layer.name}", layer.weights, Owner.GRADIENTS, BACKWARD)
    times["back_stop"] = tape.now


def _calls(rows: list[tuple[str, int, dict[str, int]]], steps: int) -> ModuleCalls:
    modules = tuple(dict.fromkeys(name for name, *_ in rows))
    rows = sorted(rows, key=lambda row: modules.index(row[0]))

    def end(at: int) -> int:
        inside = (place for place in range(at + 1, len(modules)) if not modules[place].startswith(modules[at] + "."))
        return next(inside, len(modules))

    column = {
        name: np.array([row[2][name] for row in rows]) for name in ("start", "stop", "cut", "back", "back_stop", "ns")
    }
    return ModuleCalls(
        modules=modules,
        end=np.array([end(at) for at in range(len(modules))]),
        module=np.array([modules.index(name) for name, *_ in rows]),
        **column,
        forward_ns=column["ns"],
        steps=steps,
    )
