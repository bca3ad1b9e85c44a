"""A small decoder that is trained under torch.profiler and times its own communication.

    torchrun --nproc-per-node 2 tests/integration/ddp_job.py FOLDER

Every job exports one trace per rank, FOLDER/<job>/rank<rank>.json. What each rank measured stands in
FOLDER/measured<rank>.json: by job, its profiled steps. Torch is imported inside functions, so that the sizes of the
model can be read without it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import nn

RANKS = 2
BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 1, 256, 768, 12, 2, 1024
EXTRA = 16_000_000
"""Elements of a tensor that is reduced beside the gradients."""
WARM_UP = 2


@dataclass
class Measured:
    """One step, in ns of wall time on the training thread.

    `blocked` is the time in which it could do nothing but wait for communication. `hidden` is the time from the call of
    a collective to its completion, or until it was waited for.
    """

    synchronised: bool
    forward: int = 0
    backward: int = 0
    optimizer: int = 0
    blocked: int = 0
    hidden: int = 0


@contextmanager
def timed(measured: Measured, name: str) -> Iterator[None]:
    began = time.perf_counter_ns()
    yield
    setattr(measured, name, getattr(measured, name) + time.perf_counter_ns() - began)


def decoder() -> nn.Module:
    """Embedding, blocks of causal attention and MLP, head."""
    import torch.nn.functional as F  # noqa: N812 - its usual name
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.qkv(self.before_attention(x)).split(WIDTH, dim=-1)
            q, k, v = (part.view(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
            return x + self.down(F.gelu(self.up(self.before_mlp(x))))

    return nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH),
        *(Block() for _ in range(LAYERS)),
        nn.LayerNorm(WIDTH),
        nn.Linear(WIDTH, VOCABULARY),
    )


@dataclass
class Trainer:
    """A model of its own for each job.

    Gradients live in DDP's buckets and are zeroed in place, so that a step does the same work with and without
    communication. The loss is divided by the number of ranks, so that gradients need only be summed.
    """

    bucket_cap_mb: int
    steps: list[Measured] = field(default_factory=list)

    def __post_init__(self) -> None:
        import torch
        from torch.nn.parallel import DistributedDataParallel

        torch.manual_seed(0)
        self.model = DistributedDataParallel(decoder(), bucket_cap_mb=self.bucket_cap_mb, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1))

    @property
    def now(self) -> Measured:
        return self.steps[-1]

    def forward_and_backward(self, *, synchronise: bool) -> None:
        import torch.nn.functional as F  # noqa: N812 - its usual name

        self.steps.append(Measured(synchronise))
        with nullcontext() if synchronise else self.model.no_sync():
            with timed(self.now, "forward"):
                scores = self.model(self.tokens[:, :-1]).view(-1, VOCABULARY)
                loss = F.cross_entropy(scores, self.tokens[:, 1:].reshape(-1)) / RANKS
            with timed(self.now, "backward"):
                loss.backward()

    def update(self) -> None:
        with timed(self.now, "optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=False)


Step = Callable[[int], None]


def blocking(trainer: Trainer) -> Step:
    """DDP's hook waits for the gradients, which are one bucket.

    In every other step DDP does not synchronise, and the bucket is reduced by hand after the backward pass: in both
    kinds of step the ranks compute and wait in turn, so that what else runs on the machine disturbs both alike.
    """
    import torch
    import torch.distributed as dist

    gradients = torch.empty(0)

    def reduce() -> None:
        with timed(trainer.now, "blocked"):
            dist.all_reduce(gradients, async_op=True).wait()

    def hook(_, bucket):  # DDP takes no annotation but its own class
        nonlocal gradients
        gradients = bucket.buffer()
        reduce()
        done = torch.futures.Future()
        done.set_result(gradients)
        return done

    trainer.model.register_comm_hook(None, hook)

    def step(number: int) -> None:
        synchronise = number < WARM_UP or number % 2 == 0
        trainer.forward_and_backward(synchronise=synchronise)
        if not synchronise:
            reduce()
        trainer.update()

    return step


def overlapping(trainer: Trainer) -> Step:
    """DDP as it is: buckets are reduced while the backward pass goes on, and DDP waits for them before it returns.

    The embedding's gradient is the last. What follows it is the reduction of the last bucket and that wait.
    """
    last = 0

    def note(_: torch.Tensor) -> None:
        nonlocal last
        last = time.perf_counter_ns()

    next(iter(trainer.model.parameters())).register_post_accumulate_grad_hook(note)

    def step(_: int) -> None:
        trainer.forward_and_backward(synchronise=True)
        trainer.now.blocked = time.perf_counter_ns() - last
        trainer.update()

    return step


def exposed(trainer: Trainer) -> Step:
    """A large tensor is reduced after the backward pass and waited for at once."""
    import torch
    import torch.distributed as dist

    extra = torch.ones(EXTRA)

    def step(_: int) -> None:
        trainer.forward_and_backward(synchronise=False)
        with timed(trainer.now, "blocked"):
            dist.all_reduce(extra)
        trainer.update()

    return step


def hidden(trainer: Trainer) -> Step:
    """A tensor is reduced while forward and backward run, and waited for when that is long done.

    A barrier keeps the ranks together: one that is a step ahead would wait for the other to call its collective.
    """
    import torch
    import torch.distributed as dist

    extra = torch.ones(EXTRA)

    def step(_: int) -> None:
        began = time.perf_counter_ns()
        work = dist.all_reduce(extra, async_op=True)
        done = work.get_future().then(lambda _: time.perf_counter_ns())
        trainer.forward_and_backward(synchronise=False)
        computed = time.perf_counter_ns()
        with timed(trainer.now, "blocked"):
            work.wait()
            dist.barrier()
        trainer.now.hidden = min(done.wait(), computed) - began
        trainer.update()

    return step


class Job(NamedTuple):
    make: Callable[[Trainer], Step]
    steps: int
    bucket_cap_mb: int


JOBS = {
    "blocking": Job(blocking, steps=20, bucket_cap_mb=1000),
    "overlapping": Job(overlapping, steps=10, bucket_cap_mb=50),
    "exposed": Job(exposed, steps=8, bucket_cap_mb=1000),
    "hidden": Job(hidden, steps=5, bucket_cap_mb=1000),
}


def run(name: str, folder: Path, rank: int) -> list[Measured]:
    from torch.profiler import ProfilerActivity, profile, schedule

    job = JOBS[name]
    trainer = Trainer(job.bucket_cap_mb)
    step = job.make(trainer)
    trace = folder / name / f"rank{rank}.json"
    trace.parent.mkdir(exist_ok=True)
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=WARM_UP, active=job.steps, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(trace)),
    ) as profiler:
        for number in range(WARM_UP + job.steps):
            step(number)
            profiler.step()
    return trainer.steps[WARM_UP:]


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    (folder / f"started{rank}").write_text(str(os.getpid()))
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    except RuntimeError as error:
        (folder / f"unconnected{rank}").write_text(str(error))
        raise
    measured = {}
    for name in JOBS:
        dist.barrier()
        measured[name] = [asdict(step) for step in run(name, folder, rank)]
    (folder / f"measured{rank}.json").write_text(json.dumps(measured))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
