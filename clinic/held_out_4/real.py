"""Jobs of the fourth held-out set: torchrun over gloo on CPUs, sick and healthy.

Most compute all that they say on the cores of this machine. Where ranks would hold each other up there, part of a
layer's time is that of a farm of accelerators elsewhere (`--farm-ms`).
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


def script(name: str, flags: str, ranks: int) -> Job:
    return Job(str(JOBS / f"{name}.py"), flags, ranks)


def denoise(flags: str = "", ranks: int = 2) -> Job:
    return script("denoise", flags, ranks)


def tagger(flags: str = "", ranks: int = 2) -> Job:
    return script("tagger", flags, ranks)


def mixer(flags: str = "", ranks: int = 2) -> Job:
    return script("mixer", flags, ranks)


def shards(flags: str = "", ranks: int = 2) -> Job:
    return script("shards", flags, ranks)


def retrieve(flags: str = "", ranks: int = 2) -> Job:
    return script("retrieve", flags, ranks)


def moe(flags: str = "", ranks: int = 4) -> Job:
    return script("moe", flags, ranks)


def pipe(flags: str = "", ranks: int = 2) -> Job:
    return script("pipe", flags, ranks)


def relay(flags: str = "", ranks: int = 3) -> Job:
    return script("relay", flags, ranks)


def split(flags: str = "", ranks: int = 2) -> Job:
    return script("split", flags, ranks)


def long(job: Job) -> Job:
    """What grows is timed over as many steps as are recorded."""
    return Job(job.script, job.flags, job.ranks, plain_steps=STEPS)


PICTURES: Final = "--blocks 4 --width 24 --side 40 --batch 4"
ARCHIVE: Final = "--data archive --blocks 2 --width 8 --side 24 --batch 8 --farm-ms 1.5"
SOURCES: Final = "--layers 2 --width 96 --length 48 --batch 16"
PATCHES: Final = "--blocks 6 --width 96 --patches 32 --batch 16"
DEEP: Final = "--blocks 40 --width 32 --patches 8 --batch 8"
"""Many small tensors."""
WIDE: Final = "--blocks 6 --width 384 --wide 1536 --patches 4 --batch 4 --optimizer sgd"
"""Few large tensors: 7.3 million parameters."""
GATED: Final = "--blocks 4 --width 128 --length 32 --batch 16"

_CHECKPOINTS: Final = (
    sick("packs_checkpoints_on_rank_0", "checkpoint", denoise(f"{PICTURES} --save-every 4"), "--save-every 0", rank=0),
    sick(
        "evaluates_while_three_wait",
        "evaluation",
        denoise("--blocks 3 --width 8 --side 24 --batch 8 --farm-ms 1 --evaluate-every 4 --evaluate-batches 10", 4),
        "--evaluate-every 0",
        rank=0,
    ),
)
_MACHINE: Final = (
    sick(
        "compresses_on_the_core_of_rank_0",
        "contention",
        denoise(f"{PICTURES} --cores 0,1 --hog 0"),
        "--hog -1",
        rank=0,
    ),
    sick(
        "plain_kernels_of_rank_1", "straggler", denoise(f"{PICTURES} --plain-kernels 1"), "--plain-kernels -1", rank=1
    ),
    sick(
        "slow_farm_of_one_in_eight",
        "straggler",
        mixer("--blocks 4 --width 32 --patches 8 --batch 4 --farm-ms 2.5 --farm-slow 5:2", 8),
        "--farm-slow 5:1",
        rank=5,
    ),
    sick(
        "counts_pairs_in_a_thread",
        "background_thread",
        tagger(f"{SOURCES} --statistics-pause 0.003"),
        "--statistics-pause 1000",
    ),
    real.linked("all_hosts_far_apart", mixer(f"{WIDE} --bucket-mb 4"), Rates(1500), Rates(8000), is_timed=True),
    real.linked(
        "last_host_of_three_sends_slowly",
        mixer(f"{WIDE} --width 256 --wide 1024 --farm-ms 2 --bucket-mb 1", 3),
        Rates(6000, 500),
        Rates(6000),
        is_timed=True,
    ),
)
_SHARDED: Final = (
    sick(
        "shards_reduce_in_each_pass",
        "fsdp_accumulation|missing_no_sync",
        shards("--blocks 2 --width 256 --length 4 --batch 2 --accumulate 4 --no-hold"),
        "--hold",
    ),
    sick(
        "shards_every_layer",
        "fsdp_units|small_messages",
        shards("--blocks 8 --width 64 --length 16 --batch 8 --unit layer"),
        "--unit block",
    ),
    sick("shards_rematerialize", "recompute", shards(f"{GATED} --rematerialize"), "--no-rematerialize"),
)
_SETTINGS: Final = (
    sick(
        "leaves_anomaly_detection_on",
        "debug_mode",
        mixer(f"{PATCHES} --blocks 4 --batch 48 --detect-anomaly"),
        "--no-detect-anomaly",
    ),
    sick("expects_unused_parameters", "ddp_settings", mixer(f"{DEEP} --blocks 60 --unused"), "--no-unused"),
    sick("updates_tensor_by_tensor", "optimizer", mixer(f"{DEEP} --optimizer loop"), "--optimizer fused"),
    sick(
        "two_samples_a_step",
        "small_batch",
        mixer(f"{WIDE} --optimizer fused --batch 2"),
        "--batch 4",
        is_per_sample=True,
    ),
)
_LOADING: Final = (
    sick(
        "unpacks_pictures_in_the_loop", "input_pipeline", denoise(f"{ARCHIVE} --farm-ms 2 --workers 0"), "--workers 2"
    ),
    sick(
        "one_worker_for_a_store",
        "input_pipeline",
        denoise(f"{ARCHIVE} --source-side 48 --store-ms 20 --workers 1"),
        "--workers 2",
    ),
)
_WORK: Final = (
    sick("longer_samples_on_rank_1", "work_imbalance", tagger(f"{SOURCES} --length 36,72"), "--length 54", rank=1),
    sick(
        "popular_expert",
        "expert_imbalance",
        moe("--tokens 64 --farm-ms 0.12 --popular 1:0.7"),
        "--popular none:0",
        rank=1,
    ),
)
_COMMUNICATION: Final = (
    sick("bucket_of_a_tensor", "bucket_size|small_messages", mixer(f"{DEEP} --bucket-mb 0.0005"), "--bucket-mb 25"),
    sick(
        "reduces_each_pass",
        "missing_no_sync",
        mixer(f"{WIDE} --width 256 --wide 1024 --accumulate 5 --no-hold"),
        "--hold",
    ),
    sick(
        "averages_by_hand_at_the_end",
        "exposed_comm",
        mixer(f"{WIDE} --farm-ms 3 --average hand"),
        "--average ddp --bucket-mb 4",
    ),
    sick("clips_tensor_by_tensor", "sync|small_messages", mixer(f"{PATCHES} --clip-every 1"), "--clip-every 1000"),
    sick("splits_the_sequence", "small_messages|host_bound", split("--layers 2 --chunks 4"), "--chunks 1"),
)
_HOST: Final = (
    sick(
        "measures_edits_each_step",
        "host_python",
        tagger(f"{SOURCES} --score-every 1 --score-samples 16"),
        "--score-every 1000",
    ),
    sick("collects_a_trie", "gc", tagger(f"{SOURCES} --trie 40000 --collect-every 2"), "--collect-every 0"),
    sick(
        "rewrites_the_report",
        "growing_steps|host_python",
        long(tagger(f"{SOURCES} --report-rows 600")),
        "--report-kept 600",
    ),
)
_MEMORY: Final = (
    sick(
        "bank_without_end",
        "growing_steps|memory_growth",
        long(retrieve("--batch 96 --bank 1000000 --width 768")),
        "--bank 1024",
    ),
    sick(
        "scratch_made_each_step",
        "allocation_churn",
        retrieve("--batch 96 --columns 131072 --scratch fresh"),
        "--scratch kept",
    ),
)
_STAGES: Final = (
    sick(
        "heavy_second_stage",
        "stage_imbalance",
        pipe("--layers 1,5 --farm-ms 0.45 --width 64 --batch 32"),
        "--layers 3,3",
        rank=1,
    ),
    sick(
        "relay_without_microbatches",
        "few_microbatches",
        relay("--layers 1,1,1 --farm-ms 1.6 --width 32 --batch 16 --microbatches 1"),
        "--microbatches 4",
    ),
)
_TWO: Final = (
    sick(
        "longer_samples_and_a_loop",
        "work_imbalance optimizer",
        tagger(f"{SOURCES} --length 36,72 --optimizer loop"),
        "--length 54 --optimizer fused",
    ),
)
_HEALTHY: Final = (
    healthy("healthy_denoiser", denoise(PICTURES)),
    healthy("healthy_denoiser_saves_rarely", denoise(f"{PICTURES} --save-every 60")),
    healthy("healthy_archive", denoise(f"{ARCHIVE} --farm-ms 2.5 --source-side 64 --workers 2")),
    healthy("healthy_tagger", tagger(SOURCES)),
    healthy("healthy_tagger_scores_rarely", tagger(f"{SOURCES} --score-every 50 --score-samples 4")),
    healthy("healthy_mixer", mixer(PATCHES)),
    healthy("healthy_mixer_accumulates", mixer(f"{PATCHES} --batch 8 --accumulate 3")),
    healthy(
        "healthy_mixer_of_4", mixer("--blocks 5 --width 48 --patches 8 --batch 4 --farm-ms 3 --farm-spread 0.05", 4)
    ),
    healthy("healthy_mixer_of_8", mixer("--blocks 4 --width 32 --patches 8 --batch 4 --farm-ms 4", 8)),
    healthy("healthy_shards", shards(GATED)),
    healthy("healthy_shards_of_3", shards("--blocks 3 --width 48 --length 8 --batch 8 --farm-ms 2.5", 3)),
    healthy("healthy_shards_accumulate", shards(f"{GATED} --blocks 3 --batch 6 --accumulate 3")),
    healthy("healthy_experts", moe("--tokens 64 --farm-ms 0.2")),
    healthy("healthy_pipe", pipe("--schedule gpipe --layers 2,2 --microbatches 16 --batch 64")),
    healthy("healthy_relay", relay("--farm-ms 0.5 --width 32 --batch 32 --layers 1,1,1 --microbatches 16")),
    healthy("healthy_split", split("--layers 2 --batch 32 --wide 1024")),
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
    *_MEMORY,
    *_STAGES,
    *_TWO,
    *_HEALTHY,
)
