"""Memory that a simulated rank holds, over time.

It holds weights and their moments all along, outputs of forward ops until their backward op is done, and gradients from
their first backward pass to the end of the optimizer's step.

Not modelled: batches, buckets, workspaces of kernels.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from math import prod

from .declaration import Model
from .recorded_names import FUSED_UPDATE
from .records import HostEvent, RankRecord

Block = tuple[int, int]
"""Address and bytes."""
_SEGMENT = 20 << 20
_ELEMENT = {"bfloat16": 2, "float32": 4}
_FIRST_ADDRESS = 0x7F00_0000_0000


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """A block that exists before the first step, and stays."""

    address: int
    bytes: int
    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """An allocation or a free."""

    time: int
    thread: int
    address: int
    bytes: int
    """Size; negative for a free."""
    allocated: int
    """Bytes that the allocator has handed out afterwards."""
    reserved: int
    """Bytes that it has reserved afterwards."""


@dataclass(slots=True)
class Allocator:
    """An allocator that reuses freed blocks for requests of the same size."""

    held: list[HeldBlock] = field(default_factory=list)
    changes: list[MemoryChange] = field(default_factory=list)
    _allocated: int = 0
    _reserved: int = 0
    _last: int = -1
    _end: int = _FIRST_ADDRESS
    _free: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def hold(self, size: int, owner: str, name: str) -> None:
        self.held.append(HeldBlock(self._place(size), size, owner, name))

    def take(self, time: int, thread: int, size: int) -> Block:
        address = self._place(size)
        self._record_change(time, thread, address, size)
        return address, size

    def give(self, time: int, thread: int, block: Block) -> None:
        address, size = block
        self._free[size].append(address)
        self._allocated -= size
        self._record_change(time, thread, address, -size)

    def _place(self, size: int) -> int:
        self._allocated += size
        self._reserved = max(self._reserved, -(-self._allocated // _SEGMENT) * _SEGMENT)
        if self._free[size]:
            return self._free[size].pop()
        address, self._end = self._end, self._end + -(-size // 512) * 512
        return address

    def _record_change(self, time: int, thread: int, address: int, size: int) -> None:
        self._last = max(time, self._last + 1)
        self.changes.append(MemoryChange(self._last, thread, address, size, self._allocated, self._reserved))


def allocations(record: RankRecord, model: Model, layers: range) -> Allocator:
    """Return the memory of a rank; `layers` are those of its stage."""
    made = Allocator()
    weights = [kernel.dims for kernel in model.kernels if kernel.dims]
    for layer in layers:
        for place, (_, k, n) in enumerate(weights):
            for owner, share in (("parameters", 1), ("optimizer_state", 2)):
                made.hold(share * 2 * k * n, owner, f"layers.{layer}.{place}.weight")
    steps = _StepBlocks(made, len(layers) * len(weights), model.optimizer_kernels)
    for event in record.host_events:
        if event.category == "cpu_op":
            steps.take(event)
    return made


class _StepBlocks:
    """Blocks of the ops, which are taken in the order in which they begin."""

    def __init__(self, made: Allocator, weights: int, updates: int) -> None:
        self._made = made
        self._weights, self._updates = weights, updates
        self._kept: dict[int, Block] = {}
        self._gradients: list[Block] = []
        self._backward: HostEvent | None = None
        self._products: list[Block] = []
        self._passed_on: list[Block] = []
        self._weights_done = self._updates_done = 0

    def take(self, event: HostEvent) -> None:
        if self._backward is not None and event.start >= self._backward.stop:
            self._end_backward(self._backward)
        if event.backward:
            self._backward = event
        elif self._backward is not None:
            self._products.append(self._made.take(event.start + 1, event.thread, _output(event)))
        elif event.sequence >= 0:
            self._end_pass(event)
            self._kept[event.sequence] = self._made.take(event.start + 1, event.thread, _output(event))
        elif event.name == FUSED_UPDATE:
            self._end_pass(event)
            self._update(event)

    def _end_backward(self, event: HostEvent) -> None:
        """End a backward op. Its first product is the gradient of its input, which the next op reads; the second is
        that of its weight."""
        done = [self._kept.pop(event.sequence), *self._passed_on]
        self._passed_on, weight = self._products[:1], self._products[1:]
        if weight and self._weights_done < self._weights:
            self._gradients += weight
        else:
            done += weight  # added to what the first microbatch left
        self._weights_done += len(weight)
        self._give(event.stop - len(done), event.thread, done)  # inside it, as autograd frees them
        self._backward, self._products = None, []

    def _end_pass(self, event: HostEvent) -> None:
        self._give(event.start, event.thread, self._passed_on)
        self._passed_on = []

    def _update(self, event: HostEvent) -> None:
        """Update parameters; after the last update gradients are set to None."""
        self._updates_done += 1
        if self._updates_done % self._updates == 0:
            self._give(event.stop, event.thread, self._gradients)
            self._gradients, self._weights_done = [], 0

    def _give(self, time: int, thread: int, blocks: list[Block]) -> None:
        for block in blocks:
            self._made.give(time, thread, block)


def _output(event: HostEvent) -> int:
    """Return the bytes of an op's output: of (m, k) times (k, n), or as many as an operand has; one element if no shape
    is recorded."""
    elements = event.dims[0] * event.dims[2] if event.dims else prod(event.shape)
    return elements * _ELEMENT[event.dtype]
