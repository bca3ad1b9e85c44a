"""Jobs of the second held-out set that are run: torchrun over gloo."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from clinic.patients import Patient
from clinic.real import healthy, sick
from clinic.record import Job

JOBS: Final = Path(__file__).with_name("jobs")


def mixer(flags: str, ranks: int = 2) -> Job:
    return Job(str(JOBS / "mixer.py"), flags, ranks)


def forecast(flags: str, ranks: int = 2) -> Job:
    return Job(str(JOBS / "forecast.py"), flags, ranks)


WIDE: Final = "--patches 4 --batch 4 --optimizer sgd"
ON_CPU: Final = "--image-ms 0"

_HOST: Final = (
    sick("scans_inflated_whole", "input_pipeline", mixer("--scan-kb 1536 --batch 8"), "--workers 1"),
    sick(
        "warping_before_backward",
        "host_python",
        forecast("--lengths 96:96 --point-us 22 --warp-every 1"),
        "--warp-every 40",
    ),
    sick("tidies_before_backward", "gc", forecast("--days 50000 --tidy yes", 3), "--tidy no"),
    sick("first_rank_saves", "checkpoint", mixer("--bank-mb 40 --save-every 2", 3), "--save-every 50"),
    sick("agrees_on_each_chunk", "sync", forecast("--chunks 20 --check-every 1", 4), "--check-every 40"),
)
_COMMUNICATION: Final = (
    sick(
        "weights_averaged_after_steps",
        "exposed_comm",
        mixer(f"{WIDE} --blocks 8 --width 360 --image-ms 5 --reduce weights", 3),
        "--reduce ddp --bucket-mb 2",
    ),
    sick(
        "default_buckets",
        "bucket_size",
        mixer(f"{WIDE} --blocks 10 --width 256 --image-ms 4", 4),
        "--bucket-mb 1.5",
    ),
    sick(
        "gathers_each_gradient",
        "small_messages",
        mixer("--blocks 5 --width 32 --reduce gather", 3),
        "--reduce ddp",
    ),
    sick(
        "six_passes_reduced",
        "missing_no_sync",
        mixer(
            f"{WIDE} --blocks 8 --width 256 --batch 2 --image-ms 2 --passes 6 --bucket-mb 2 --sync every",
            3,
        ),
        "--sync last",
    ),
)
_RANKS: Final = (
    sick("device_without_power", "straggler", mixer("--capped 0:2 --workers 1", 4), "--capped 0:1"),
    sick("long_series_in_turn", "work_imbalance", forecast("--lengths 30:60", 3), "--deal even"),
)
_COMPUTE: Final = (
    sick(
        "segments_again",
        "recompute",
        mixer(f"{ON_CPU} --blocks 8 --width 128 --patches 24 --batch 8 --segments 8"),
        "--segments 0",
    ),
)
_HEALTHY: Final = (
    healthy("healthy_mixer", mixer("--scan-kb 512 --workers 1 --bucket-mb 1", 3)),
    healthy("healthy_mixer_alone", mixer(f"{ON_CPU} --blocks 8 --width 128 --patches 24 --batch 8", 1)),
    healthy("healthy_forecast", forecast("--chunks 2 --hidden 48 --check-every 20", 4)),
    healthy("healthy_passes", mixer("--blocks 8 --width 128 --batch 2 --passes 4 --bucket-mb 1")),
)

REAL: Final[tuple[Patient, ...]] = (*_HOST, *_COMMUNICATION, *_RANKS, *_COMPUTE, *_HEALTHY)
