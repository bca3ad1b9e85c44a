"""Jobs of the fifth held-out set: four ranks over gloo whose tokens travel to experts, as fifteen people wrote them.

Scripts share no code. Four ranks would hold each other up on two cores, so most of an expert's time is that of an
accelerator elsewhere, which follows the tokens; routing, messages, dense parts and updates are computed here. The
fixed job has the same tokens, spread evenly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from clinic import real
from clinic.patients import Patient
from clinic.record import Job

JOBS: Final = Path(__file__).with_name("jobs")
RANKS: Final = 4
RECORDED, TIMED = 60, 54
"""Steps of a recorded job, and of one that is only timed. What moves through a run does so in either."""


def job(script: str, flags: str = "", steps: int = RECORDED, timed: int = TIMED) -> Job:
    return Job(str(JOBS / f"{script}.py"), flags, RANKS, steps, timed)


def slow_job(script: str, flags: str) -> Job:
    """Return a job with fewer steps, for steps that are long."""
    return job(script, flags, 50, 44)


def uneven(name: str, uneven_job: Job, fix: str, *, rank: int = -1, layer: str = "") -> Patient:
    return real.sick(name, "expert_imbalance", uneven_job, fix, is_timed=True, rank=rank, layer=layer)


def count_of(first: int) -> str:
    """Match the number of a layer, counted from zero or from one."""
    return rf"(layer|block|module|moe)s?\W{{0,3}}({first}|{first + 1})\b"


EVEN_TRUNK: Final = "--tilts 0,0,0"
EVEN_SPEECH: Final = "--popularity 1 1 1 1 1 1 1 1"

_HOT_EXPERT: Final = (
    uneven("switch_prefers_an_expert", job("switch_lm", "--gate-prior 0,0,1.2,0"), "--gate-prior 0,0,0,0", rank=2),
    uneven("popular_phonemes", job("speech", "--popularity 1 9 1 1 1 1 1 1"), EVEN_SPEECH, rank=0),
    uneven("clustered_textures", slow_job("patches", "--table clustered"), "--table even", rank=3),
)
_HOT_LAYER: Final = (
    uneven("last_block_is_tilted", job("trunk", "--tilts 0,0,4"), EVEN_TRUNK, rank=1, layer=count_of(2)),
    uneven(
        "decoder_prefers_two_ranks",
        job("translate", "--decoder-mix 0.48,0.02,0.02,0.48"),
        "--decoder-mix 0.25,0.25,0.25,0.25",
        layer=rf"decoder\.0\b|{count_of(1)}",
    ),
)
_DRIFTING: Final = (
    uneven("taste_moves_to_a_category", job("recommend", "--placement category"), "--placement turns", rank=1),
    uneven("routers_get_colder", job("anneal", "--cold 0.3"), "--cold 0", rank=3),
)
_OF_THE_DATA: Final = (
    uneven("one_language_a_step", job("languages", "--sampler language"), "--sampler mixed"),
    uneven("code_goes_to_a_rank", job("corpus", "--route kind"), "--route hash", rank=2),
    uneven("documents_in_order", slow_job("documents", "--pack in-order"), "--pack spread"),
)
_HEALTHY: Final = (
    real.healthy("healthy_noisy_router", job("chat")),
    real.healthy("healthy_capacity", job("capacity")),
    real.healthy("healthy_shared_expert", job("vision_text")),
    real.healthy("healthy_buckets_of_length", job("buckets")),
    real.healthy("healthy_sequence_parallel", job("ulysses")),
)

REAL: Final[tuple[Patient, ...]] = (*_HOT_EXPERT, *_HOT_LAYER, *_DRIFTING, *_OF_THE_DATA, *_HEALTHY)
