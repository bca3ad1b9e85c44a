"""Jobs of the third held-out set: torchrun over gloo on CPUs, sick and healthy.

Where ranks would hold each other up on the cores that they share, part of a layer's time is that of an accelerator
elsewhere (`--device-ms`). All else is done for real.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from clinic import real
from clinic.linked import Rates
from clinic.patients import Patient
from clinic.real import healthy
from clinic.record import STEPS, Job

JOBS: Final = Path(__file__).with_name("jobs")
sick = partial(real.sick, is_timed=True)


def job(script: str, flags: str = "", ranks: int = 2) -> Job:
    return Job(str(JOBS / f"{script}.py"), flags, ranks)


def vision(flags: str = "", ranks: int = 2) -> Job:
    return job("train", f"--model vision {flags}", ranks)


def language(flags: str = "", ranks: int = 2) -> Job:
    return job("train", f"--model language {flags}", ranks)


def speech(flags: str = "", ranks: int = 2) -> Job:
    return job("train", f"--model speech {flags}", ranks)


def adapters(flags: str = "", ranks: int = 2) -> Job:
    return job("train", f"--model adapters {flags}", ranks)


def growing(one: Job) -> Job:
    """A fault that grows is timed over as many steps as are recorded."""
    return Job(one.script, one.flags, one.ranks, plain_steps=STEPS)


TRANSFORMER: Final = "--layers 4 --width 96 --length 64 --batch 8"
"""A transformer that both cores compute."""
CONVOLUTIONS: Final = "--layers 5 --width 32 --side 64 --batch 10"
AWAY: Final = "--device-ms 3 --batch 8"
"""An accelerator that takes 24 ms forward and 48 backward."""
LARGE: Final = "--layers 6 --width 256 --length 8 --batch 4"
SHARDED: Final = "--layers 4 --width 96 --length 48 --batch 8"

_CHECKPOINTS: Final = (
    sick(
        "rank_0_saves_often",
        "checkpoint",
        vision(f"{AWAY} --layers 4 --save-mb 60 --save-every 3"),
        "--save-every 1000",
        rank=0,
    ),
    sick(
        "shards_saved_often",
        "checkpoint",
        job("sharded", "--layers 2 --width 256 --length 8 --batch 8 --device-ms 2 --shards-every 1"),
        "--shards-every 1000",
    ),
    sick(
        "rank_0_validates",
        "evaluation",
        language(f"{AWAY} --layers 4 --width 48 --length 32 --validate-every 4 --validate-batches 6", 3),
        "--validate-every 1000",
        rank=0,
    ),
)
_MACHINE: Final = (
    sick(
        "core_shared_with_a_hog",
        "contention",
        language(f"{TRANSFORMER} --pin 0,1 --neighbour 1"),
        "--neighbour -1",
        rank=1,
    ),
    sick(
        "thread_counts_words",
        "background_thread",
        language("--layers 6 --width 80 --length 48 --batch 8 --monitor-pause 0.004"),
        "--monitor-pause 1000",
    ),
    real.linked(
        "one_host_sends_slowly",
        vision("--layers 6 --width 128 --side 8 --batch 4 --device-ms 8 --bucket-mb 1", 3),
        Rates(4000, 300),
        Rates(4000),
        is_timed=True,
    ),
    sick(
        "slow_accelerator_of_a_rank",
        "straggler",
        vision(f"{AWAY} --device-factor 2:1.6", 3),
        "--device-factor 2:1",
        rank=2,
    ),
    sick(
        "slow_speech_rank",
        "straggler",
        speech("--device-ms 2.5 --width 32 --layers 1 --length 20 --device-factor 0:1.5 --jitter 0.04", 4),
        "--device-factor 0:1",
        rank=0,
    ),
)
_SHARDED: Final = (
    sick(
        "shards_reduce_each_pass",
        "fsdp_accumulation|missing_no_sync",
        job("sharded", "--layers 2 --width 224 --length 12 --batch 2 --passes 4 --sync every"),
        "--sync last",
    ),
    sick(
        "units_of_single_layers",
        "fsdp_units",
        job("sharded", f"{SHARDED} --layers 2 --device-ms 2 --units layers"),
        "--units blocks",
    ),
)
_SETTINGS: Final = (
    sick(
        "anomaly_mode_left_on",
        "debug_mode",
        language(f"{TRANSFORMER} --width 64 --length 32 --anomaly yes"),
        "--anomaly no",
    ),
    sick(
        "looks_for_unused_parameters",
        "ddp_settings",
        adapters("--layers 64 --width 448 --batch 8 --device-ms 5 --optimizer sgd --bucket-mb 2 --find-unused yes"),
        "--find-unused no",
    ),
    sick(
        "tables_made_each_step",
        "allocation_churn",
        job("recommender", "--batch 160 --columns 65536 --tables 3 --device-ms 0.1 --buffers new"),
        "--buffers kept",
    ),
    sick("recomputes_small_blocks", "recompute", language(f"{TRANSFORMER} --recompute yes"), "--recompute no"),
    sick(
        "adam_in_python",
        "optimizer",
        adapters("--layers 200 --width 48 --batch 8 --optimizer own --device-ms 1"),
        "--optimizer fused",
    ),
    sick(
        "one_sequence_a_step",
        "small_batch",
        language(f"{LARGE} --batch 1 --device-ms 6"),
        "--batch 8",
        is_per_sample=True,
    ),
)
_LOADING: Final = (
    sick(
        "decodes_in_the_loop",
        "input_pipeline",
        vision("--device-ms 4 --side 96 --batch 8 --workers 0 --decode-passes 4 --layers 2 --width 16"),
        "--workers 2",
    ),
    sick(
        "one_worker_for_a_far_disk",
        "input_pipeline",
        vision("--device-ms 4 --batch 8 --layers 2 --width 16 --far-disk all:25 --workers 1"),
        "--workers 4",
    ),
    sick(
        "far_disk_of_a_rank",
        "input_pipeline|straggler",
        vision("--device-ms 3 --batch 8 --layers 2 --width 16 --far-disk 1:6", 3),
        "--far-disk 1:0",
        rank=1,
    ),
)
_WORK: Final = (
    sick(
        "longer_sequences_on_a_rank",
        "work_imbalance",
        speech("--width 48 --device-ms 2 --length 24,24,44", 3),
        "--length 30",
        rank=2,
    ),
    sick(
        "lengths_by_chance",
        "work_imbalance",
        speech("--width 48 --device-ms 2 --length 6:58", 3),
        "--length 32",
    ),
    sick(
        "hot_expert",
        "expert_imbalance",
        job("experts", "--tokens 96 --device-ms 0.12 --hot 2:0.45", 4),
        "--hot none:0",
        rank=2,
    ),
)
_COMMUNICATION: Final = (
    sick(
        "bucket_for_each_tensor",
        "bucket_size|small_messages",
        adapters("--layers 80 --width 96 --device-ms 3 --bucket-mb 0.001"),
        "--bucket-mb 25",
    ),
    sick(
        "all_in_one_bucket",
        "bucket_size|exposed_comm",
        language(f"{LARGE} --layers 8 --device-ms 12 --optimizer sgd --bucket-mb 500"),
        "--bucket-mb 3",
    ),
    sick(
        "gradients_one_by_one",
        "small_messages|exposed_comm",
        adapters("--layers 80 --width 128 --device-ms 3 --reduce each"),
        "--reduce ddp",
    ),
    sick(
        "averages_after_backward",
        "exposed_comm",
        language(f"{LARGE} --layers 8 --device-ms 12 --optimizer sgd --reduce flat"),
        "--reduce ddp --bucket-mb 3",
    ),
    sick(
        "each_pass_reduces",
        "missing_no_sync",
        language(f"{LARGE} --layers 3 --batch 2 --passes 4 --device-ms 3 --optimizer sgd --sync every"),
        "--sync last",
    ),
    sick(
        "metrics_after_each_step",
        "sync",
        vision("--device-ms 3 --layers 2 --width 16 --metrics 24", 3),
        "--metrics-every 1000",
    ),
)
_HOST: Final = (
    sick(
        "logs_gradients_as_json",
        "host_python",
        vision(f"{AWAY} --layers 12 --width 16 --log-values 12000"),
        "--log-every 1000",
    ),
    sick(
        "tensor_parallel_logs",
        "host_python",
        job("tensor", "--device-ms 4 --log-values 12000 --layers 3"),
        "--log-every 1000",
    ),
    sick(
        "collects_each_step",
        "gc",
        speech("--device-ms 3 --width 32 --length 20 --catalogue 80000 --collect-every 1"),
        "--collect-every 0",
    ),
    sick(
        "tokenizes_in_each_step",
        "host_python|input_pipeline",
        language("--device-ms 2 --width 48 --tokenize 64"),
        "--tokenize-when start",
    ),
    sick(
        "compares_with_all_before",
        "host_python",
        growing(language("--device-ms 3 --layers 2 --width 32 --length 24 --near-duplicates 100000 --batch 6")),
        "--near-duplicates 4",
    ),
    sick(
        "histograms_every_2",
        "periodic|warmup|host_python",
        language(f"{AWAY} --width 64 --length 16 --histograms-every 2"),
        "--histograms-every 1000",
    ),
    sick(
        "writes_text_every_5",
        "periodic|warmup|evaluation",
        language("--device-ms 2 --width 32 --length 24 --sample-every 5"),
        "--sample-every 1000",
    ),
    sick(
        "keeps_all_graphs",
        "memory_growth",
        growing(language(f"{TRANSFORMER} --vocabulary 2000 --history graphs")),
        "--history numbers",
    ),
)
_STAGES: Final = (
    sick(
        "heavy_second_stage",
        "stage_imbalance",
        job("stages", "--layers 1,4,1 --device-ms 0.6 --batch 16", 3),
        "--layers 2,2,2",
        rank=1,
    ),
    sick(
        "one_microbatch",
        "few_microbatches",
        job("stages", "--layers 1,1,1 --width 32 --device-ms 1.6 --batch 16 --schedule gpipe --microbatches 1", 3),
        "--microbatches 4",
    ),
)
_TWO: Final = (
    sick(
        "collects_and_tiny_buckets",
        "gc bucket_size|small_messages",
        adapters("--layers 80 --width 96 --device-ms 2 --bucket-mb 0.001 --catalogue 40000 --collect-every 1"),
        "--bucket-mb 25 --collect-every 0",
    ),
    sick(
        "slow_accelerator_and_decoding",
        "input_pipeline straggler",
        vision("--device-ms 4 --side 72 --workers 0 --decode-passes 4 --layers 2 --width 16 --device-factor 1:1.5"),
        "--workers 2 --device-factor 1:1",
    ),
)
_HEALTHY: Final = (
    healthy("healthy_vision", vision(CONVOLUTIONS)),
    healthy("healthy_language", language(TRANSFORMER)),
    healthy("healthy_speech_with_jitter", speech("--device-ms 3 --width 48 --length 24 --jitter 0.05", 3)),
    healthy("healthy_recommender", job("recommender", "--batch 64 --device-ms 0.5")),
    healthy("healthy_shards", job("sharded", SHARDED)),
    healthy("healthy_shards_of_4", job("sharded", "--layers 2 --width 48 --length 16 --device-ms 5", 4)),
    healthy("healthy_tensor_parallel", job("tensor", "--device-ms 6")),
    healthy(
        "healthy_stages",
        job("stages", "--layers 1,1,1 --width 32 --length 8 --device-ms 1 --batch 24 --microbatches 24", 3),
    ),
    healthy(
        "healthy_stages_gpipe",
        job("stages", "--layers 1,1 --device-ms 0.7 --batch 32 --microbatches 16 --schedule gpipe"),
    ),
    healthy("healthy_experts", job("experts", "--tokens 96 --device-ms 0.2 --layers 2", 4)),
    healthy(
        "healthy_accumulation",
        language(f"{LARGE} --layers 2 --width 128 --batch 2 --passes 4 --device-ms 6 --optimizer sgd", 3),
    ),
    healthy(
        "healthy_shards_accumulate",
        job("sharded", "--layers 3 --width 96 --length 16 --batch 4 --passes 3 --device-ms 4"),
    ),
    healthy("healthy_with_busy_other_core", speech("--device-ms 4 --width 32 --length 16 --pin 0,0 --neighbour 1")),
    healthy("healthy_saves_every_40", vision("--device-ms 5 --layers 4 --save-mb 4 --save-every 40")),
    healthy("healthy_of_8", adapters("--layers 16 --width 64 --batch 4 --device-ms 12", 8)),
    healthy(
        "healthy_far_disk_with_workers",
        vision("--device-ms 6 --layers 2 --width 16 --far-disk all:6 --workers 2 --jitter 0.03"),
    ),
)

REAL: Final[tuple[Patient, ...]] = (
    *_CHECKPOINTS,
    *_MACHINE,
    *_SHARDED,
    *_SETTINGS,
    *_LOADING,
    *_WORK,
    *_COMMUNICATION,
    *_HOST,
    *_STAGES,
    *_TWO,
    *_HEALTHY,
)
