"""`lostflops estimate`: what a job will take, before it is launched."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lostflops.cli.output import JsonOption, show

EXAMPLE = "lostflops estimate config.json --device H100-SXM5 --dp 8 --zero 3 --seq 4096"


class Dtype(StrEnum):
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    FP8 = "fp8"


class Precision(StrEnum):
    AUTOCAST = "autocast"
    MASTER = "master"
    PURE = "pure"


class Recompute(StrEnum):
    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Optimizer(StrEnum):
    ADAMW = "adamw"
    ADAM = "adam"
    SGD = "sgd"
    SGD_MOMENTUM = "sgd-momentum"


def _degree(flag: str, meaning: str) -> Any:
    return typer.Option(flag, min=1, metavar="N", help=f"{meaning}  [default: as described, or 1]", show_default=False)


def _choice(flag: str, meaning: str, default: str) -> Any:
    return typer.Option(flag, help=f"{meaning}  [default: as described, or {default}]", show_default=False)


def estimate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A description (TOML or JSON), a Hugging Face config.json, or a Python function as file.py:function.",
            show_default=False,
        ),
    ],
    *,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="Device, as H100-SXM5.", show_default=False)
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="NAME|FILE",
            help="How devices are joined.  [default: the usual machine of the device]",
            show_default=False,
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration", metavar="FILE", help="What was measured with lostflops calibrate.", show_default=False
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory", metavar="SIZE", help="Memory of a device, as 80GiB.  [default: by its name]", show_default=False
        ),
    ] = None,
    dp: Annotated[int | None, _degree("--dp", "Data-parallel ranks.")] = None,
    tp: Annotated[int | None, _degree("--tp", "Tensor-parallel ranks.")] = None,
    cp: Annotated[int | None, _degree("--cp", "Context-parallel ranks.")] = None,
    pp: Annotated[int | None, _degree("--pp", "Pipeline stages.")] = None,
    zero: Annotated[
        int | None, typer.Option("--zero", min=0, max=3, help="ZeRO stage; 3 is FSDP.", show_default=False)
    ] = None,
    microbatch: Annotated[int | None, _degree("--microbatch", "Sequences that a rank takes at once.")] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            metavar="N",
            help="Sequences of a step on all ranks.  [default: a microbatch on each]",
            show_default=False,
        ),
    ] = None,
    seq: Annotated[
        int | None, typer.Option("--seq", min=1, metavar="N", help="Tokens of a sequence.", show_default=False)
    ] = None,
    dtype: Annotated[Dtype | None, _choice("--dtype", "Of products.", "bf16")] = None,
    precision: Annotated[
        Precision | None,
        _choice("--precision", "Parameters and states in fp32, with fp32 masters, or all in dtype.", "autocast"),
    ] = None,
    recompute: Annotated[Recompute | None, _choice("--recompute", "What is computed twice.", "none")] = None,
    optimizer: Annotated[Optimizer | None, _choice("--optimizer", "Whose states are held.", "adamw")] = None,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compiled/--eager",
            help="Whether torch.compile is used.  [default: either, with wider ranges]",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict step time and memory from a description.

    FLOPs of a step, memory of a rank by owner and whether it fits, what is communicated in which group, and how long a
    step takes, as a range with what limits it. Parameters, gradients and optimizer states are exact.
    """
    from dataclasses import replace

    from lostflops.errors import UsageError
    from lostflops.predict.estimate.estimate import estimate as figures
    from lostflops.predict.estimate.machine import machine as known
    from lostflops.predict.estimate.request import demand_of, request
    from lostflops.predict.estimate.result import result
    from lostflops.units import parse_bytes

    chosen: dict[str, Any] = {"dp": dp, "tp": tp, "cp": cp, "pp": pp, "zero": zero}
    chosen |= {"microbatch": microbatch, "batch": batch, "sequence": seq, "dtype": dtype}
    chosen |= {"precision": precision, "recompute": recompute, "optimizer": optimizer, "compiled": compiled}
    capacity = None if memory is None else parse_bytes(memory)
    if capacity is not None and capacity <= 0:
        raise UsageError(f"--memory {memory} is no memory: give a size above zero, as 80GiB")
    asked = request(model, {name: value for name, value in chosen.items() if value is not None})
    machine = known(
        asked.job.dtype,
        device=device,
        topology=topology,
        calibration=calibration,
        memory=capacity,
    )
    answer = result(figures(demand_of(asked, machine.per_host), machine), asked.remarks)
    show(replace(answer, next_command=_next(asked.job.ranks, machine.per_host)), as_json)


def _next(ranks: int, per_host: int) -> str:
    hosts = -(-ranks // per_host)
    nodes = f"--nnodes={hosts} " if hosts > 1 else ""
    return f"lostflops run -- torchrun {nodes}--nproc-per-node={min(ranks, per_host)} train.py"
