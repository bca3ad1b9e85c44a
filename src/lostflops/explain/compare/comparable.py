"""Can runs be compared? What each recorded about its job, and where they differ.

A different device, world size or model makes a different job: the comparison is refused. Different batches are compared
per sample or token. Any other difference may be the very change under test, and is reported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from lostflops.core.results import Field, Pair, Pairs, Table
from lostflops.core.units import pluralise

if TYPE_CHECKING:
    from lostflops.store.run import Run

REFUSED: Final = ("device", "world size", "model")
_FACTS: Final = (*REFUSED, "samples per step", "tokens per step", "dtype", "backend", "torch", "buckets", "threads")
_SET: Final = ("CUDA_", "NCCL_", "OMP_", "PYTORCH_", "TORCH_")
"""First letters of recorded environment variables that can make a job faster."""
_UNSET: Final = "unset"


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Facts about the job of one run."""

    told: Mapping[str, str]
    """Values as people read them; facts that were not recorded are missing."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that differs between the sides."""

    fact: str
    before: tuple[str, ...]
    """Values that runs of side A have."""
    after: tuple[str, ...]
    """Values that runs of side B have."""

    def __str__(self) -> str:
        return f"{self.fact} {' and '.join(self.before)} in A, {' and '.join(self.after)} in B"


@dataclass(frozen=True, slots=True)
class JobComparison:
    """Facts that all runs share, those that differ, and those that not all runs recorded."""

    same: Mapping[str, str]
    differing: tuple[Difference, ...]
    unknown: tuple[str, ...]
    mixed: tuple[str, ...] = field(default=())
    """Facts that differ within a side."""

    @property
    def refused(self) -> tuple[Difference, ...]:
        return tuple(one for one in self.differing if one.fact in REFUSED)


def facts(run: Run, samples: float | None, tokens: float | None) -> JobFacts:
    told = {**_ranks(run), **_model(run), **_job(run)}
    for what, count in (("samples per step", samples), ("tokens per step", tokens)):
        if count is not None:
            told[what] = f"{count:,.0f}"
    return JobFacts(told)


def compare(before: Sequence[JobFacts], after: Sequence[JobFacts]) -> JobComparison:
    """Compare the facts of both sides.

    >>> compare([JobFacts({"model": "m", "torch": "2"})], [JobFacts({"model": "n", "torch": "2"})]).refused
    (Difference(fact='model', before=('m',), after=('n',)),)
    >>> compare([JobFacts({"model": "m"}), JobFacts({})], [JobFacts({"model": "n"})]).refused
    (Difference(fact='model', before=('m',), after=('n',)),)
    """
    names = dict.fromkeys([*_FACTS, *(name for one in (*before, *after) for name in one.told)])
    same, differing, unknown, mixed = {}, [], [], []
    for name in names:
        absent = _UNSET if name.startswith("$") else None
        sides = [[one.told.get(name, absent) for one in side] for side in (before, after)]
        values = [tuple(dict.fromkeys(value for value in side if value is not None)) for side in sides]
        known = [value for side in sides for value in side if value is not None]
        is_told = len(known) == len(before) + len(after)
        if not is_told and (known or name in ("model", "samples per step")):
            unknown.append(name)
        if all(values) and set(values[0]) != set(values[1]):
            differing.append(Difference(name, *values))
        elif is_told and len(set(known)) == 1:
            same[name] = known[0]
        elif len(set(known)) > 1:
            mixed.append(name)
    return JobComparison(same, tuple(differing), tuple(unknown), tuple(mixed))


def differing(found: JobComparison) -> Table:
    rows = tuple((one.fact, ", ".join(one.before), ", ".join(one.after)) for one in found.differing)
    fields = (Field("fact", label="setting"), Field("before", label="A"), Field("after", label="B"))
    return Table("differing", "Differences between the jobs", fields, rows)


def same(found: JobComparison) -> Pairs:
    return Pairs("same", "The same in all runs", tuple(Pair(name, value) for name, value in found.same.items()))


def _ranks(run: Run) -> dict[str, str]:
    [(devices, backend)] = run.rows(
        "select list(distinct device order by device) filter (device is not null), max(backend) from ranks"
    )
    found = {"device": " and ".join(devices or ()) or "no accelerator", "world size": str(run.world_size)}
    return {**found, "backend": backend} if backend else found


def _model(run: Run) -> dict[str, str]:
    """Return the model and its dtype. The model is the parameters of all ranks by name and whole shape: stages of a
    pipeline have their own."""
    rows = run.rows("select distinct name, shape, dtype, bytes from parameters order by name, shape")
    if not rows:
        return {}
    shapes = sorted({(name, shape) for name, shape, _, _ in rows})
    count = sum(_size(shape) for _, shape in shapes)
    sizes: dict[str, int] = {}
    for _, _, dtype, size in rows:
        sizes[dtype] = sizes.get(dtype, 0) + (size or 0)
    mark = hashlib.sha256(repr(shapes).encode()).hexdigest()[:6]
    told = {"model": f"{pluralise(count, 'parameter')} ({mark})", "dtype": max(sizes, key=sizes.__getitem__)}
    ((buckets,),) = run.rows("select max(bucket) + 1 from parameters")
    return {**told, "buckets": str(buckets)} if buckets else told


def _size(shape: str | None) -> int:
    """Return the number of elements of a shape, given as JSON; 0 if unknown.

    >>> _size("[2,3]"), _size("[]"), _size(None)
    (6, 1, 0)
    """
    if shape is None:
        return 0
    found = 1
    for length in json.loads(shape):
        found *= length
    return found


def _job(run: Run) -> dict[str, str]:
    rows = run.rows(
        "select key, value from job where rank = (select min(rank) from job) and value is not null "
        "qualify attempt is not distinct from max(attempt) over ()"
    )
    held: dict[str, Any] = {key: json.loads(value) for key, value in rows if key != "window"}
    settings = held.get("settings") or {}
    told = {"torch": held.get("torch"), "threads": settings.get("threads"), "script": held.get("script")}
    told |= {name: settings.get(key) for name, key in (("matmul precision", "matmul_precision"),)}
    variables = held.get("environment") or {}
    told |= {f"${name}": value for name, value in variables.items() if name.startswith(_SET)}
    return {name: str(value) for name, value in told.items() if value is not None}
