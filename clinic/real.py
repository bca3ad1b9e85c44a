"""The real patients: torchrun over gloo."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from clinic.linked import Rates, record_linked, time_linked
from clinic.patients import Patient
from clinic.record import Job, record, time_job


def sick(
    name: str,
    causes: str,
    job: Job,
    cure: str,
    *,
    is_per_sample: bool = False,
    is_timed: bool = False,
    rank: int = -1,
    layer: str = "",
) -> Patient:
    """`causes` are words, each an id or the ids that name the cause (`bucket_size|small_messages`). `cure` are flags
    after those of the job; the last of a kind holds. An `is_timed` job writes its own step times, with the samples of a
    step."""
    cured = job.with_flags(cure)

    def make(folder: Path, is_cured: bool) -> Path:
        return record(cured if is_cured else job, folder)

    def time(is_cured: bool) -> float:
        return time_job(cured if is_cured else job, per_sample=is_per_sample)

    accepted = tuple(tuple(cause.split("|")) for cause in causes.split())
    return Patient(
        name,
        tuple(ids[0] for ids in accepted),
        is_real=True,
        make=make,
        is_per_sample=is_per_sample,
        job=job,
        fixed=cured,
        accepted=accepted,
        rank=None if rank < 0 else rank,
        layer=layer,
        time=time if is_timed or not is_per_sample else None,
    )


def linked(name: str, job: Job, sick: Rates, cured: Rates, *, is_timed: bool = False) -> Patient:
    """Hosts whose links are slow: all of them, or the last one's."""

    def make(folder: Path, is_cured: bool) -> Path:
        return record_linked(job, folder, cured if is_cured else sick)

    def time(is_cured: bool) -> float:
        return time_linked(job, cured if is_cured else sick)

    rank = None if sick.last is None else job.ranks - 1
    return Patient(name, ("slow_link",), is_real=True, make=make, rank=rank, time=time if is_timed else None)


def healthy(name: str, job: Job) -> Patient:
    return Patient(name, (), is_real=True, make=lambda folder, _: record(job, folder), job=job)


def train(flags: str, ranks: int = 2) -> Job:
    return Job("train.py", flags, ranks)


def text(flags: str, ranks: int = 2) -> Job:
    return Job("text.py", flags, ranks)


def growing(job: Job) -> Job:
    """Return the job timed over as many steps as are recorded, for a fault that grows."""
    return replace(job, plain_steps=job.steps)


def pipeline(flags: str, ranks: int = 3) -> Job:
    return Job("pipeline.py", flags, ranks)


DDP: Final = "--reduce ddp"
FUSED: Final = "--optimizer fused"
TINY: Final = "--layers 12 --width 256 --heads 16 --bucket-mb 0.01"
EVEN: Final = "--layers 2,2,2,2"
ENOUGH: Final = "--microbatches 12"
DEEP: Final = "--layers 24 --batch 4 --length 16"
OVERLAPPED: Final = "--layers 12 --width 280 --bucket-mb 1"
LARGE: Final = "--layers 12 --width 900 --sample-ms 6"
MANY: Final = "--layers 10 --width 700 --batch 2 --accumulate 4"

_LOADING: Final = (
    sick("loader_without_workers", "input_pipeline", train("--workers 0 --read-ms 8"), "--workers 2"),
    sick("loader_too_few_workers", "input_pipeline", train("--workers 1 --read-ms 20"), "--workers 3"),
)
_LATE: Final = (
    sick("slow_device", "straggler", train("--slow 1:1.6", 3), "--slow 1:1"),
    sick("slow_disk_of_a_rank", "straggler", train("--far-disk 1:7 --workers 0", 3), "--far-disk 1:0.2"),
    sick("host_stall_of_a_rank", "straggler", train("--preview 1:2500", 3), "--preview 1:0"),
    sick("thermal", "straggler", growing(train("--slow 1:1:1.012", 3)), "--slow 1:1"),
)
_UNEVEN: Final = (
    sick(
        "uneven_batches",
        "work_imbalance",
        train("--rank-batch random:2:14", 3),
        "--rank-batch 8,8,8",
        is_per_sample=True,
    ),
    sick("one_rank_more_samples", "work_imbalance", train("--rank-batch 6,6,12", 3), "--rank-batch 8,8,8"),
)
_COMMUNICATION: Final = (
    sick("tiny_buckets", "bucket_size", train(TINY), "--bucket-mb 25"),
    sick("one_huge_bucket", "bucket_size", train(f"{LARGE} --bucket-mb 1000"), "--bucket-mb 25"),
    sick(
        "reduced_by_hand_each",
        "small_messages",
        Job("by_hand.py", "--reduce each --layers 12 --width 256 --heads 8"),
        DDP,
    ),
    sick("reduced_by_hand_flat", "exposed_comm", Job("by_hand.py", f"--reduce flat {LARGE}"), DDP),
    linked("slow_links", train(OVERLAPPED), Rates(250), Rates(4000)),
    linked("slow_link_of_a_host", train(OVERLAPPED, 3), Rates(4000, 250), Rates(4000)),
    sick("sync_each_step", "sync", train("--metrics 60 --barrier"), "--metrics-every 20"),
    sick("accumulation_without_no_sync", "missing_no_sync", train(MANY), "--no-sync"),
)
_HOST: Final = (
    sick("heavy_logging", "host_python", train("--log-every 1 --log-values 12000"), "--log-every 50"),
    sick("checkpoint_each_step", "checkpoint", train("--frozen-mb 24 --save-every 1"), "--save-every 50"),
    sick("collects_each_step", "gc", text("--index --collect-every 1 --batch 32"), "--collect-every 0"),
    sick("collects_each_step_alone", "gc", text("--index --collect-every 1 --batch 32", 1), "--collect-every 0"),
)
_PIPELINES: Final = (
    sick("uneven_stages", "stage_imbalance", pipeline("--layers 1,2,3"), "--layers 2,2,2"),
    sick("uneven_stages_gpipe", "stage_imbalance", pipeline("--layers 3,2,1,2 --schedule gpipe", 4), EVEN),
    sick("too_few_microbatches", "few_microbatches", pipeline("--microbatches 3"), ENOUGH),
    sick("two_microbatches_gpipe", "few_microbatches", pipeline("--microbatches 2 --schedule gpipe"), ENOUGH),
)
_COMPUTE: Final = (
    sick("optimizer_loop", "optimizer", text(f"--optimizer loop {DEEP}", 1), FUSED),
    sick("optimizer_loop_ddp", "optimizer", train("--optimizer loop --width 256 --heads 32"), FUSED),
    sick("keeps_graphs", "memory_growth", growing(text("--keep-losses tensors", 1)), "--keep-losses numbers"),
    sick("recomputes", "recompute", text("--checkpoint --layers 8 --vocabulary 100"), "--no-checkpoint"),
    sick("small_batch", "small_batch", train("--layers 10 --width 700 --batch 2"), "--batch 12", is_per_sample=True),
)
_TWO: Final = (
    sick(
        "slow_loader_and_device",
        "input_pipeline straggler",
        train("--workers 0 --read-ms 6 --slow 1:1.5", 3),
        "--workers 2 --slow 1:1",
    ),
    sick(
        "tiny_buckets_and_logging",
        "host_python bucket_size",
        train(f"{TINY} --log-every 1"),
        "--bucket-mb 25 --log-every 50",
    ),
    sick(
        "checkpoint_and_no_sync",
        "checkpoint missing_no_sync",
        train(f"{MANY} --save-every 1"),
        "--no-sync --save-every 50",
    ),
    sick(
        "sync_and_uneven",
        "work_imbalance sync",
        train("--metrics 60 --rank-batch 6,6,12", 3),
        "--metrics-every 20 --rank-batch 8,8,8",
    ),
)
_HEALTHY: Final = (
    healthy("healthy_alone", text("--batch 32", 1)),
    healthy("healthy_ddp_2", train("--layers 16 --width 200")),
    healthy("healthy_ddp_4", train("--layers 16 --width 200", 4)),
    healthy("healthy_loader", train("--workers 2 --read-ms 5")),
    healthy("healthy_sharded", Job("sharded.py", "--layers 6 --width 200")),
    healthy("healthy_pipeline", pipeline("--microbatches 24 --batch 48 --layer-ms 0.3")),
    healthy("healthy_accumulation", train("--width 200 --batch 2 --accumulate 4 --no-sync")),
    healthy("healthy_jitter", train("--jitter 0.08", 3)),
)

REAL: Final = (
    *_LOADING,
    *_LATE,
    *_UNEVEN,
    *_COMMUNICATION,
    *_HOST,
    *_PIPELINES,
    *_COMPUTE,
    *_TWO,
    *_HEALTHY,
)
