"""Is `device=` right about jobs that were recorded on both devices?

    python benchmarks/device_pairs.py TRACES

TRACES is a folder with pairs of traces of the same job, `h100_NAME.json.gz` and `mi300_NAME.json.gz` (TraceLens has
five such pairs). Each run predicts the step on the other machine, as `lostflops whatif --change device=` does.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from lostflops.ingest import ingest
from lostflops.predict.whatif.answer import answer
from lostflops.predict.whatif.baseline import baseline
from lostflops.store.run import Run

DEVICES = {"h100": "H100-SXM5", "mi300": "MI300X"}


class Outcome(NamedTuple):
    job: str
    to: str
    now: float
    predicted: float
    low: float
    high: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def is_inside(self) -> bool:
        return self.low <= self.measured <= self.high

    @property
    def has_wrong_sign(self) -> bool:
        """Whether it says faster where the other is slower, or the reverse, and the interval does not say that it may
        be so."""
        return (self.predicted - self.now) * (self.measured - self.now) < 0 and not self.low <= self.now <= self.high


def compare(traces: Path) -> Iterator[Outcome]:
    for path in sorted(traces.glob("h100_*.json.gz")):
        job = path.name.removeprefix("h100_").removesuffix(".json.gz")
        with tempfile.TemporaryDirectory() as folder:
            starts = {}
            for name in DEVICES:
                ingest([traces / f"{name}_{job}.json.gz"], Path(folder) / name, workers=1)
                with Run.open(Path(folder) / name) as run:
                    starts[name] = baseline(run)
            for own, other in (("h100", "mi300"), ("mi300", "h100")):
                found = answer(starts[own], [("device", DEVICES[other])])
                yield Outcome(job, DEVICES[other], starts[own].measured, found.predicted, found.low, found.high,
                              starts[other].measured)  # fmt: skip


def main() -> None:
    outcomes = list(compare(Path(sys.argv[1])))
    print("| job | to | recorded ms | predicted ms | range | measured ms | error |\n|---|---|--:|--:|--:|--:|--:|")
    for one in outcomes:
        ms = [f"{value / 1e6:.1f}" for value in (one.now, one.predicted, one.low, one.high, one.measured)]
        print(f"| {one.job} | {one.to} | {ms[0]} | {ms[1]} | {ms[2]} to {ms[3]} | {ms[4]} | {one.error:+.1%} |")
    print(f"\nmean error {fmean(abs(one.error) for one in outcomes):.1%}, inside "
          f"{sum(one.is_inside for one in outcomes)} of {len(outcomes)}, wrong sign outside the interval "
          f"{sum(one.has_wrong_sign for one in outcomes)}")  # fmt: skip


if __name__ == "__main__":
    main()
