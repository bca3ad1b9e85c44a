"""A synthetic patient: the same job declared sick and cured."""

from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from zlib import crc32

from clinic.patients import Patient
from lostflops.testing import Losses, Straggler, SyntheticCluster, store
from lostflops.testing.simulate import simulate
from lostflops.testing.truth import total_wall


@dataclass(frozen=True)
class Case:
    """`lines` are those of the ledger that the disease shows on. A healthy job is its own cure."""

    name: str
    causes: tuple[str, ...]
    lines: tuple[str, ...]
    sick: SyntheticCluster
    cured: SyntheticCluster
    seed: int = 0

    def cluster(self, cured: bool, again: int = 0) -> SyntheticCluster:
        """Chance differs between patients, between sick and cured, and each time that it runs `again`."""
        others = "".join(f" {number}" for number in (self.seed, again) if number)
        return replace(self.cured if cured else self.sick, seed=crc32(f"{self.name} {cured}{others}".encode()))

    def varied(self, number: int) -> "Case":
        """Return the case with another seed, noise and size of its fault; number 0 is the case itself."""
        if not number:
            return self
        draw = Random(f"{self.name} {number}")
        noise, size = draw.choice((0.5, 2, 4)), draw.choice((0.5, 0.75, 1.5))
        sick, cured = (_vary(job, noise, size) for job in (self.sick, self.cured))
        return replace(self, sick=sick, cured=cured, seed=number)

    @property
    def patient(self) -> Patient:
        runs = count(1)

        def time(cured: bool) -> float:
            """Return what all ranks take for all steps: both jobs have as many."""
            return total_wall(simulate(self.cluster(cured, next(runs))))

        return Patient(self.name, self.causes, is_real=False, make=self._make, time=time)

    def _make(self, folder: Path, cured: bool) -> Path:
        return store(self.cluster(cured).generate(), folder, host_names=True)


def _vary(job: SyntheticCluster, noise: float, size: float) -> SyntheticCluster:
    losses = job.losses
    sized = {
        name: round(size * getattr(losses, name))
        for name in ("data", "copy_bytes", "memset_bytes", "sync", "alloc", "python", "compile")
    }
    late = (replace(one, factor=1 + size * (one.factor - 1), delay=round(size * one.delay)) for one in job.stragglers)
    return replace(job, noise=noise * job.noise, losses=replace(losses, **sized), stragglers=tuple(late))


def planted(name: str, cause: str, line: str, job: SyntheticCluster, losses: Losses) -> Case:
    return Case(name, (cause,), (line,), replace(job, losses=losses), job)


def late(name: str, job: SyntheticCluster, *stragglers: Straggler) -> Case:
    return Case(name, ("straggler",), ("comm.wait",), replace(job, stragglers=stragglers), job)


def healthy(name: str, job: SyntheticCluster) -> Case:
    return Case(name, (), (), job, job)
