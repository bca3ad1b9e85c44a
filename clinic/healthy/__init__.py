"""Healthy jobs as people write them: what is recorded of them is kept in `recordings`, and must get no finding.

python -m clinic.healthy gan vision            # record these two again, as `recordings/NAME.quiet.tar.xz`
python -m clinic.healthy gan --busy            # beside a process that computes half of the time: `gan.busy.tar.xz`

Each job is a script of `jobs` that has no time to lose: fused optimizers, enough microbatches, gradients reduced while
the backward pass runs. A recording is the `capture` folder that `lostflops run -- torchrun ...` leaves with its
defaults; an ingest makes everything else of it. *Quiet* means that nothing was started beside the job: the recordings
here were made on two cores that other programs shared, with load averages of 15 to 38.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from clinic.patients import Patient
from clinic.real import healthy
from clinic.record import Job

_FOLDER: Final = Path(__file__).parent
RECORDINGS: Final = _FOLDER / "recordings"


def _job(script: str, ranks: int = 2, steps: int = 64) -> Patient:
    return healthy(f"healthy_recorded_{script}", Job(str(_FOLDER / "jobs" / f"{script}.py"), ranks=ranks, steps=steps))


HEALTHY: Final[tuple[Patient, ...]] = (
    _job("accumulation"),
    _job("contrastive", ranks=3),
    _job("evaluated", steps=128),
    _job("experts", ranks=4),
    _job("gan", steps=96),
    _job("language_fsdp2"),
    _job("pipeline"),
    _job("policy_value", steps=96),
    _job("recommender", ranks=4),
    _job("rnn"),
    _job("sharded_optimizer"),
    _job("tensor_parallel"),
    _job("two_models", steps=96),
    _job("vision"),
)
