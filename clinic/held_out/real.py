"""Held-out jobs that are run: torchrun over gloo."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from clinic.linked import Rates
from clinic.patients import Patient
from clinic.real import healthy, linked, sick
from clinic.record import Job

JOBS: Final = Path(__file__).with_name("jobs")


def _job(script: str, flags: str, ranks: int) -> Job:
    return Job(str(JOBS / script), flags, ranks)


def ranking(flags: str, ranks: int = 2) -> Job:
    return _job("ranking.py", flags, ranks)


def convnet(flags: str, ranks: int = 2) -> Job:
    return _job("convnet.py", flags, ranks)


def documents(flags: str, ranks: int = 2) -> Job:
    return _job("documents.py", flags, ranks)


def stages(flags: str, ranks: int = 2) -> Job:
    return _job("stages.py", flags, ranks)


ON_CPU: Final = "--image-ms 0"
LARGE: Final = "--blocks 20 --channels 192 --side 1 --image-ms 8 --bucket-mb 6"
CATALOGUE: Final = "--rows 60000 --width 96"
MANY_CLASSES: Final = "--classes 60"
TEXT: Final = "--lines 1200000"

_HOST: Final = (
    sick("log_parsed_in_the_loop", "input_pipeline", ranking("--raw all --events 150"), "--workers 2"),
    sick("curves_in_python", "host_python", ranking("--quality-every 1", 3), "--quality-every 50"),
    sick("early_collections", "gc", documents(f"{TEXT} --freeze imports"), "--freeze text"),
    sick("saves_distributed", "checkpoint", ranking("--rows 16000 --save-every 1"), "--save-every 50"),
    sick("accuracy_of_classes", "sync", documents(f"{MANY_CLASSES} --accuracy-every 1", 3), "--accuracy-every 20"),
)
_COMMUNICATION: Final = (
    sick("pieces_after_backward", "exposed_comm", convnet(f"{LARGE} --reduce pieces"), "--reduce ddp"),
    sick("bucket_of_each_tensor", "bucket_size", convnet("--blocks 48 --bucket-mb 0.0001", 3), "--bucket-mb 25"),
    sick("hook_of_each_tensor", "small_messages", convnet("--blocks 32 --reduce hooks", 3), "--reduce ddp"),
    sick("syncs_every_pass", "missing_no_sync", ranking(f"{CATALOGUE} --passes 3 --batch 6"), "--sync last"),
    linked("slow_uplink", convnet("--blocks 20 --channels 96 --bucket-mb 1"), Rates(400), Rates(4000)),
)
_RANKS: Final = (
    sick("raw_log_of_a_rank", "straggler", ranking("--raw 2 --events 200", 4), "--raw none"),
    sick("busy_neighbour", "straggler", documents("--token-us 0 --width 320 --pin --neighbour 0"), "--neighbour -1"),
    sick(
        "shards_sorted_by_length",
        "work_imbalance",
        documents("--lengths 20:110 --shards contiguous", 4),
        "--shards strided",
    ),
    sick("head_on_last_stage", "stage_imbalance", stages("--layers 4,4"), "--layers 6,2"),
)
_COMPUTE: Final = (
    sick(
        "few_users", "small_batch", ranking(f"{CATALOGUE} --user-ms 0.8 --batch 24"), "--batch 80", is_per_sample=True
    ),
    sick(
        "amsgrad_loop",
        "optimizer",
        convnet(f"{ON_CPU} --blocks 60 --channels 16 --side 6 --adam loop", 1),
        "--adam fused",
    ),
    sick(
        "wrapped_blocks",
        "recompute",
        convnet(f"{ON_CPU} --blocks 12 --side 16 --batch 8 --save-memory yes"),
        "--save-memory no",
    ),
    sick(
        "keeps_feature_maps",
        "memory_growth",
        convnet(f"{ON_CPU} --blocks 10 --side 24 --batch 12 --watch maps", 1),
        "--watch means",
    ),
)
_HEALTHY: Final = (
    healthy("healthy_recommender", ranking("--raw all --events 30 --workers 1 --user-ms 2.5", 3)),
    healthy("healthy_convnet_alone", convnet(f"{ON_CPU} --blocks 8 --channels 48 --side 16 --batch 8", 1)),
    healthy("healthy_documents", documents("--token-us 0 --width 320 --layers 6 --accuracy-every 20")),
    healthy("healthy_head", stages("--batch 48 --microbatches 24")),
)

REAL: Final[tuple[Patient, ...]] = (*_HOST, *_COMMUNICATION, *_RANKS, *_COMPUTE, *_HEALTHY)
