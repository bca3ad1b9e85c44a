"""How often does the judge of late ranks name a rank that is not late, and how often does it miss one that is?

    python benchmarks/late_ranks.py --jobs 1000

Makes jobs of 4 to 256 ranks and 20 to 200 steps with noise of six kinds (lostflops.testing.rank_noise). First no rank
is late. Then one is late by 2%, and its job is recorded for as long as the judge itself says that it takes.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from lostflops.account.late.judge import LateVerdict, judge
from lostflops.testing.rank_noise import NOISES

_STEP = 100e6
_RANKS = (4, 8, 16, 32, 64, 128, 256)
_STEPS = (20, 50, 100, 200)
_LATE = 0.02
_MOST_STEPS = 3000


def judged(times: np.ndarray) -> LateVerdict:
    return judge(_STEP * (1 + times), range(len(times)), range(times.shape[1]), _STEP)


def found(rng: np.random.Generator, noise: str, ranks: int) -> bool | None:
    """Record until the judge says that the steps suffice; None if they never do."""
    steps = 20
    while steps <= _MOST_STEPS:
        times = NOISES[noise](rng, ranks, steps)
        times[ranks // 3] += _LATE
        verdict = judged(times)
        assert verdict.power is not None
        needed = verdict.power.steps_for(_LATE)
        if needed is not None and needed <= steps:
            return ranks // 3 in {one.rank for one in verdict.late}
        steps = max(steps * 3 // 2, min(needed or 0, _MOST_STEPS))
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--late-jobs", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng, kinds = np.random.default_rng(asked.seed), list(NOISES)
    named, tried = Counter[str](), Counter[str]()
    for number in range(asked.jobs):
        kind = kinds[number % len(kinds)]
        ranks, steps = int(rng.choice(_RANKS)), int(rng.choice(_STEPS))
        tried[kind] += 1
        named[kind] += bool(judged(NOISES[kind](rng, ranks, steps)).late)
    for kind in kinds:
        print(f"{kind:<18} no late rank: {named[kind]:>3} of {tried[kind]} jobs name one", flush=True)
    print(f"all: {named.total()} of {tried.total()} ({100 * named.total() / max(tried.total(), 1):.2f}%)", flush=True)
    hits, suffice = Counter[str](), Counter[str]()
    for number in range(asked.late_jobs):
        kind = kinds[number % len(kinds)]
        outcome = found(rng, kind, int(rng.choice(_RANKS)))
        suffice[kind] += outcome is not None
        hits[kind] += outcome is True
    for kind in kinds:
        print(f"{kind:<18} one rank 2% late: found in {hits[kind]:>3} of {suffice[kind]} jobs whose steps suffice")
    print(f"all: {hits.total()} of {suffice.total()} ({100 * hits.total() / max(suffice.total(), 1):.1f}%)")


if __name__ == "__main__":
    main()
