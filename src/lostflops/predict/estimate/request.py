"""Request for an estimate: the model in the form in which it was given, and the job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lostflops.core.errors import UsageError
from lostflops.predict.estimate.demand import Demand, estimate_counted_demand, estimate_demand
from lostflops.predict.estimate.description import ModelDescription, PlannedJob, make_job, read_description, read_table
from lostflops.predict.estimate.factory import Counted, count, is_factory
from lostflops.predict.estimate.huggingface import is_config, model_of, remarks


@dataclass(frozen=True, slots=True)
class Request:
    model: ModelDescription | Counted
    job: PlannedJob
    remarks: tuple[str, ...] = ()
    """Features of the model that the estimate ignores."""


def request(model: str, chosen: dict[str, Any]) -> Request:
    """Read the model and the job; `chosen` takes precedence over what a description says about the job."""
    path = Path(model)
    if is_factory(model) and not path.exists():
        if said := [flag for name, flag in (("sequence", "--seq"), ("microbatch", "--microbatch")) if name in chosen]:
            raise UsageError(f"the inputs of {model} are its microbatch: leave out {' and '.join(said)}")
        if "batch" in chosen:
            raise UsageError(
                f"the number of sequences in the inputs of {model} is unknown, so --batch cannot be split: "
                "leave it out, return one microbatch as inputs, or describe the model"
            )
        built = count(model)
        # A module is as it was built: its own dtype is what it holds.
        held = {"precision": "autocast"} if built.dtype == "fp32" else {"precision": "pure", "dtype": built.dtype}
        return Request(built, make_job({"sequence": 1, **held, **chosen}, model))
    if not path.is_file():
        raise UsageError(
            f"{model} is neither a file nor a function: give a description, a config.json or file.py:function"
        )
    fields = read_table(path)
    if is_config(fields):
        found, job = model_of(fields, model), make_job(chosen, model)
        return Request(found, job, remarks(fields, job.sequence))
    found, said_of_job = read_description(path)
    return Request(found, make_job(said_of_job | chosen, model))


def demand_of(asked: Request, per_host: int) -> Demand:
    if isinstance(asked.model, Counted):
        return estimate_counted_demand(asked.model, asked.job, per_host)
    return estimate_demand(asked.model, asked.job, per_host)
