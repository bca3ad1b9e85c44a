"""A synthetic patient: the same job declared sick and cured."""

from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from clinic.patients import Patient
from lostflops.testing import Losses, Straggler, SyntheticCluster, store


@dataclass(frozen=True)
class Case:
    """`lines` are those of the ledger that the disease shows on. A healthy job is its own cure."""

    name: str
    causes: tuple[str, ...]
    lines: tuple[str, ...]
    sick: SyntheticCluster
    cured: SyntheticCluster

    def cluster(self, cured: bool) -> SyntheticCluster:
        """Chance differs between patients, and between sick and cured."""
        return replace(self.cured if cured else self.sick, seed=crc32(f"{self.name} {cured}".encode()))

    @property
    def patient(self) -> Patient:
        return Patient(self.name, self.causes, is_real=False, make=self._make)

    def _make(self, folder: Path, cured: bool) -> Path:
        return store(self.cluster(cured).generate(), folder, host_names=True)


def planted(name: str, cause: str, line: str, job: SyntheticCluster, losses: Losses) -> Case:
    return Case(name, (cause,), (line,), replace(job, losses=losses), job)


def late(name: str, job: SyntheticCluster, *stragglers: Straggler) -> Case:
    return Case(name, ("straggler",), ("comm.wait",), replace(job, stragglers=stragglers), job)


def healthy(name: str, job: SyntheticCluster) -> Case:
    return Case(name, (), (), job, job)
