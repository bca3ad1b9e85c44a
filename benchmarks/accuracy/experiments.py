"""Which jobs are changed how, and what is asked of the prediction. Experiments of a group share their baseline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Setting:
    """How a job is run: flags of its script, ranks, and the rate of each rank's link."""

    flags: tuple[str, ...] = ()
    ranks: int = 2
    mbit: int = 250
    script: str = "job.py"


@dataclass(frozen=True, slots=True)
class Experiment:
    """`batches` is how many of the baseline's a changed step computes: a gain is one for the same work."""

    name: str
    what: str
    changes: tuple[str, ...]
    changed: Setting
    batches: int = 1


@dataclass(frozen=True, slots=True)
class Group:
    """`steps` are recorded of each run."""

    name: str
    baseline: Setting
    experiments: tuple[Experiment, ...] = field(default=())
    steps: int = 12


_LARGE = ("--layers", "50", "--backward-ms", "400")
_SMALL = ("--layers", "8")
_UNEVEN = ("--layers", "2", "--forward-ms", "50", "--backward-ms", "50", "--jitter-ms", "200")


def _bucket(size: int) -> Setting:
    return Setting((*_LARGE, "--bucket-mb", str(size)), mbit=400)


def _stale(steps: int) -> Setting:
    """The parameter server is one rank more."""
    return Setting((*_UNEVEN, "--staleness", str(steps)), ranks=4, mbit=1000, script="stale_job.py")


_BUCKETS = Group(
    "bucket",
    _bucket(25),
    tuple(
        Experiment(
            f"bucket-25-to-{size}", f"DDP buckets of 25 MB become {size} MB", (f"bucket_mb={size}",), _bucket(size)
        )
        for size in (1, 5, 100)
    ),
)
_BUCKETS_BACK = Group(
    "bucket-back",
    _bucket(5),
    (Experiment("bucket-5-to-25", "DDP buckets of 5 MB become 25 MB", ("bucket_mb=25",), _bucket(25)),),
)
_EXCHANGING = ("--layers", "16", "--bucket-mb", "5")


def _exchanging(*flags: str, mbit: int = 250) -> Setting:
    return Setting((*_EXCHANGING, *flags), mbit=mbit)


_NETWORK = Group(
    "network",
    _exchanging(),
    (
        Experiment(
            "bandwidth-halved", "link of 250 Mbit/s becomes 125", ("network.bandwidth=0.5x",), _exchanging(mbit=125)
        ),
        Experiment(
            "bandwidth-doubled", "link of 250 Mbit/s becomes 500", ("network.bandwidth=2x",), _exchanging(mbit=500)
        ),
        Experiment(
            "bucket-and-bandwidth",
            "DDP buckets of 5 MB become 10 MB, and the link of 250 Mbit/s becomes 500",
            ("bucket_mb=10", "network.bandwidth=2x"),
            Setting(("--layers", "16", "--bucket-mb", "10"), mbit=500),
        ),
    ),
)
_UPDATES = Group(
    "updates",
    _exchanging(),
    (
        Experiment(
            "accumulate",
            "gradients are reduced only in every fourth microbatch (`no_sync`)",
            ("accumulate=4",),
            _exchanging("--accumulate", "4"),
            batches=4,
        ),
        Experiment("zero-1", "`ZeroRedundancyOptimizer`", ("zero=1",), _exchanging("--zero", "1")),
        Experiment(
            "compression", "gradients are reduced in fp16 (a hook)", ("compression=fp16",), _exchanging("--compress")
        ),
    ),
)
_STRAGGLER = Group(
    "straggler",
    Setting((*_SMALL, "--late-ms", "150"), ranks=3),
    (
        Experiment(
            "straggler",
            "one of three ranks no longer sleeps 150 ms in each forward pass",
            ("straggler=removed",),
            Setting(_SMALL, ranks=3),
        ),
    ),
)


def _loader(name: str, load_ms: int, what: str) -> Group:
    flags = (*_SMALL, "--load-ms", str(load_ms))
    changed = Setting((*flags, "--workers", "2"))
    return Group(name, Setting(flags), (Experiment(name, what, ("data=2",), changed),), steps=10)


_LOADER = _loader("loader", 150, "2 workers instead of 0 load batches that take 150 ms")
_HIDDEN_LOADER = _loader(
    "loader-hidden", 900, "2 workers instead of 0 load batches that take 900 ms, longer than a step"
)
_SLOW_LOADER = _loader(
    "loader-bound", 1500, "2 workers instead of 0 load batches that take 1,500 ms, more than 2 can hide"
)
_WORLD = Group(
    "world",
    Setting(("--layers", "16")),
    (Experiment("world-2-to-4", "4 ranks instead of 2", ("world_size=4",), Setting(("--layers", "16"), ranks=4)),),
)
_STALE = Group(
    "staleness",
    _stale(0),
    (
        Experiment(
            "staleness-2",
            "a parameter server with 3 randomly late ranks lets them be 2 steps apart",
            ("staleness=2",),
            _stale(2),
        ),
        Experiment(
            "staleness-unbounded",
            "a parameter server with 3 randomly late ranks never makes a rank wait",
            ("staleness=unbounded",),
            _stale(1_000_000),
        ),
    ),
    steps=30,
)
_SERVER = Group(
    "server",
    Setting(_UNEVEN, ranks=3, mbit=1000),
    (
        Experiment(
            "server-2",
            "DDP with 3 randomly late ranks becomes a parameter server that lets ranks be 2 steps apart",
            ("staleness=2",),
            _stale(2),
        ),
        Experiment(
            "server-unbounded",
            "DDP with 3 randomly late ranks becomes a parameter server that never makes a rank wait",
            ("staleness=unbounded",),
            _stale(1_000_000),
        ),
    ),
    steps=30,
)

GROUPS: Final = (
    _STRAGGLER,
    _LOADER,
    _HIDDEN_LOADER,
    _SLOW_LOADER,
    _STALE,
    _SERVER,
    _NETWORK,
    _UPDATES,
    _WORLD,
    _BUCKETS,
    _BUCKETS_BACK,
)
