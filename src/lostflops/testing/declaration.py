"""Declaration of a synthetic cluster: plain values, checked when they are built.

Times are integer nanoseconds, sizes bytes, rates GB/s (bytes per nanosecond). This module does not depend on how the
cluster runs.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

Cause = Literal["slow_kernels", "more_work", "larger_batch", "late_data", "host_stall", "allocation"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
_BY_FACTOR = ("slow_kernels", "more_work", "larger_batch")


Dtype = Literal["bfloat16", "float32"]


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One forward op of a layer and the kernel that it launches."""

    duration: int
    dims: tuple[int, int, int] | None = None
    """(m, k, n) of a matmul: its backward is two matmuls (input and weight gradient) of the same duration and FLOPs.
    Without dims, the op is elementwise and its backward is one kernel."""
    op: str = ""
    name: str = ""
    """Name of the kernel, if it is not the usual one."""
    shape: tuple[int, ...] = ()
    """Shape of an elementwise op, which is recorded with the op; empty if none is."""
    dtype: Dtype = "bfloat16"

    def __post_init__(self) -> None:
        _require(self.duration > 0, f"a kernel needs a positive duration, not {self.duration}")

    @property
    def flops(self) -> int:
        if self.dims is None:
            return 0
        m, k, n = self.dims
        return 2 * m * k * n

    @property
    def forward_op(self) -> str:
        """Name of the op without the namespace, as in `aten::mm`."""
        return self.op or ("mm" if self.dims else "mul")

    def scaled(self, factor: float) -> "Kernel":
        """Return the same kernel on `factor` times as many rows."""
        dims = None if self.dims is None else (round(self.dims[0] * factor), *self.dims[1:])
        shape = (round(self.shape[0] * factor), *self.shape[1:]) if self.shape else ()
        return replace(self, duration=max(1, round(self.duration * factor)), dims=dims, shape=shape)


@dataclass(frozen=True, slots=True)
class HostCosts:
    """Costs of the host: each op is dispatch, then the launch call, then a tail; then Python before the next op. A
    phase with kernels shorter than this sum is launch-bound."""

    dispatch: int = 2_000
    launch_call: int = 1_500
    tail: int = 500
    between_ops: int = 0
    between_steps: int = 1_000
    launch_latency: int = 4_000
    sync_return: int = 2_000
    jitter: float = 0.0
    """Variation of dispatch and stalls: the standard deviation of their logarithm."""

    def __post_init__(self) -> None:
        _require(
            min(self.dispatch, self.tail, self.between_ops, self.between_steps) >= 0, "host costs must not be negative"
        )
        _require(
            min(self.launch_call, self.launch_latency, self.sync_return) > 0,
            "launch_call, launch_latency and sync_return must be above zero",
        )


@dataclass(frozen=True, slots=True)
class Network:
    """Times of collectives: T(S) = alpha + factor * S / gbs, with factor 2(n-1)/n for a ring all-reduce and 1 for
    send/recv. A group that spans hosts pays the `inter_` values."""

    alpha: int = 12_000
    gbs: int = 100
    inter_alpha: int = 25_000
    inter_gbs: int = 25
    jitter: float = 0.0
    """Standard deviation of the logarithm of T."""

    def __post_init__(self) -> None:
        _require(
            min(self.alpha, self.inter_alpha) > 0 and min(self.gbs, self.inter_gbs) > 0,
            "network latencies and bandwidths must be above zero",
        )

    def all_reduce(self, size: int, members: int, across_hosts: bool) -> int:
        alpha, gbs = self._level(across_hosts)
        return alpha + 2 * (members - 1) * size // (members * gbs)

    def gather(self, size: int, members: int, across_hosts: bool) -> int:
        """Return the time of an all-gather or reduce-scatter: half of a ring all-reduce's bytes."""
        alpha, gbs = self._level(across_hosts)
        return alpha + (members - 1) * size // (members * gbs)

    def latency(self, across_hosts: bool) -> int:
        return self._level(across_hosts)[0]

    def send(self, size: int, across_hosts: bool) -> int:
        alpha, gbs = self._level(across_hosts)
        return alpha + size // gbs

    def _level(self, across_hosts: bool) -> tuple[int, int]:
        return (self.inter_alpha, self.inter_gbs) if across_hosts else (self.alpha, self.gbs)


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses to plant, per step. A planted loss may cost less than its time: the host runs ahead of the device, which
    hides short stalls."""

    data: int = 0
    """The training thread waits this long for its batch, at the start of the step."""
    copy_bytes: int = 0
    """Host-to-device copy of the batch on the compute stream, before the first layer."""
    memset_bytes: int = 0
    """A memset on the compute stream, after the copy."""
    sync: int = 0
    """The forward pass calls `.item()` this many times, at equal distances; once is in the middle."""
    alloc: int = 0
    """Allocator retry in the middle of the backward pass: it drains the device, then takes this long."""
    python: int = 0
    """The training thread runs no op for this long, before the last forward layer."""
    launch_factor: int = 1
    """Forward ops cost the host this many times as much."""
    steps: tuple[int, ...] | None = None
    ranks: tuple[int, ...] | None = None
    pageable: bool = False
    """The copied memory is not pinned: the copy is slower, and the host waits for it."""
    compile: int = 0
    """The first forward pass is compiled for this long before it runs."""

    def __post_init__(self) -> None:
        amounts = (self.data, self.copy_bytes, self.memset_bytes, self.alloc, self.python, self.sync, self.compile)
        _require(min(amounts) >= 0, "a planted loss must not be negative")
        _require(self.launch_factor >= 1, "launch_factor must be at least 1")

    def hit(self, rank: int, step: int) -> bool:
        return (self.steps is None or step in self.steps) and (self.ranks is None or rank in self.ranks)


@dataclass(frozen=True, slots=True)
class Straggler:
    """One slow rank."""

    rank: int
    cause: Cause
    factor: float = 1.0
    """Size of slow_kernels, more_work (more kernels) and larger_batch (larger kernels)."""
    delay: int = 0
    """Size of the other causes, in ns."""
    steps: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _require(self.cause in CAUSES, f"unknown cause {self.cause!r}; use one of {', '.join(CAUSES)}")
        if self.cause in _BY_FACTOR:
            _require(self.factor > 1.0, f"{self.cause} needs factor > 1")
        else:
            _require(self.delay > 0, f"{self.cause} needs delay > 0")

    def hit(self, rank: int, step: int) -> bool:
        return rank == self.rank and (self.steps is None or step in self.steps)


@dataclass(frozen=True, slots=True)
class Clock:
    """A host's clock, which shows true time + offset + drift, in whole nanoseconds."""

    offset: int = 0
    drift_ppm: float = 0.0

    def __post_init__(self) -> None:
        _require(abs(self.drift_ppm) <= 1_000, "drift must be at most 1000 ppm")

    def read(self, true_time: int) -> int:
        return true_time + self.offset + true_time * round(self.drift_ppm * 1_000) // 1_000_000_000


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Shares (0 to 1) of records that the written trace lacks."""

    kernels: float = 0.0
    """Device events."""
    launches: float = 0.0
    """Launch calls."""
    metadata: float = 0.0
    """Metadata of collectives (the kernel's arguments and its `record_param_comms` together)."""

    def __post_init__(self) -> None:
        for share in (self.kernels, self.launches, self.metadata):
            _require(0.0 <= share <= 1.0, f"a share must be between 0 and 1, not {share}")


@dataclass(frozen=True, slots=True)
class Model:
    """The work of one rank (one pipeline stage): equal layers, then an optimizer. Gradients are reduced by ring
    all-reduce."""

    layers: int = 4
    kernels: tuple[Kernel, ...] = field(
        default=(Kernel(40_000, (1024, 512, 512)), Kernel(10_000), Kernel(30_000, (1024, 512, 512)))
    )
    optimizer_kernels: int = 2
    optimizer_duration: int = 20_000
    gradient_bytes: int = 2_000_000
    activation_bytes: int = 1_000_000
    buckets: int = 2
    """Number of gradient buckets; the first ones overlap with the backward pass."""
    first_bucket: int = 0
    """Number of layers in the first bucket; 0 if it has as many as the others."""
    fused: bool = True
    """If false, the optimizer runs other kernels, inside of an annotation."""
    foreach: bool = True
    """An optimizer that is not fused works on lists of tensors; if false, on one tensor after the other."""
    pieces: int = 1
    """A bucket is reduced in this many pieces."""

    def __post_init__(self) -> None:
        _require(self.layers >= 1 and bool(self.kernels), "a model needs a layer with a kernel")
        _require(self.optimizer_kernels >= 1 and self.optimizer_duration > 0, "a step needs an optimizer kernel")
        _require(1 <= self.buckets <= self.layers, f"{self.buckets} buckets do not fit {self.layers} layers")
        _require(0 <= self.first_bucket <= self.layers - self.buckets + 1, "each bucket needs at least one layer")
        _require(
            self.pieces >= 1 and self.gradient_bytes // self.pieces > 0,
            "each bucket needs at least one piece, of at least one byte",
        )
        _require(bool(self.first_bucket < self.layers), "first_bucket must leave layers for the other buckets")
        _require(
            self.gradient_bytes % 2 == 0 and self.activation_bytes % 2 == 0, "sizes in bytes must be even (bfloat16)"
        )
        _require(self.gradient_bytes > 0 and self.activation_bytes > 0, "sizes must be above zero")
