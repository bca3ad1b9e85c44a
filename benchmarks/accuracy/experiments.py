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
        Experiment("bandwidth-halved", "250 Mbit/s become 125", ("network.bandwidth=0.5x",), _exchanging(mbit=125)),
        Experiment("bandwidth-doubled", "250 Mbit/s become 500", ("network.bandwidth=2x",), _exchanging(mbit=500)),
        Experiment(
            "bucket-and-bandwidth",
            "DDP buckets of 5 MB become 10 MB, and 250 Mbit/s become 500",
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
            "gradients are reduced with every fourth microbatch (`no_sync`)",
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
            "a rank of three that sleeps 150 ms in each forward pass no longer does",
            ("straggler=removed",),
            Setting(_SMALL, ranks=3),
        ),
    ),
)


def _loader(name: str, load_ms: int, what: str) -> Group:
    flags = (*_SMALL, "--load-ms", str(load_ms))
    changed = Setting((*flags, "--workers", "2"))
    return Group(name, Setting(flags), (Experiment(name, what, ("data=2",), changed),), steps=10)


_LOADER = _loader("loader", 150, "batches that take 150 ms are loaded by 2 workers instead of none")
_HIDDEN_LOADER = _loader("loader-hidden", 900, "batches that take 900 ms, longer than a step, get 2 workers")
_SLOW_LOADER = _loader("loader-bound", 1500, "batches of 1,500 ms, longer than 2 workers can hide, get 2 workers")
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
            "a parameter server lets 3 ranks that are late by chance be 2 steps apart",
            ("staleness=2",),
            _stale(2),
        ),
        Experiment(
            "staleness-unbounded",
            "a parameter server makes none of 3 ranks that are late by chance wait",
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
            "DDP of 3 ranks that are late by chance becomes a parameter server that lets them be 2 steps apart",
            ("staleness=2",),
            _stale(2),
        ),
        Experiment(
            "server-unbounded",
            "DDP of 3 ranks that are late by chance becomes a parameter server that makes none wait",
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
