"""`lostflops estimate`: time and memory of a job before it is launched."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lostflops.cli.output import JsonOption, show

EXAMPLE = "lostflops estimate config.json --device H100-SXM5 --dp 8 --zero 3 --seq 4096"


class DtypeOption(StrEnum):
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
    return typer.Option(flag, min=1, metavar="N", help=f"{meaning}  [default: from MODEL, or 1]", show_default=False)


def _choice(flag: str, meaning: str, default: str) -> Any:
    return typer.Option(flag, help=f"{meaning}  [default: from MODEL, or {default}]", show_default=False)


def estimate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A description (TOML or JSON), a Hugging Face config.json, or a Python function (file.py:function).",
            show_default=False,
        ),
    ],
    *,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="Device, e.g. H100-SXM5.", show_default=False)
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="NAME|FILE",
            help="How devices are connected.  [default: the usual server for the device]",
            show_default=False,
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE", help="File from lostflops calibrate.", show_default=False),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Memory per device, e.g. 80GiB.  [default: known by the device's name]",
            show_default=False,
        ),
    ] = None,
    dp: Annotated[int | None, _degree("--dp", "Data-parallel ranks.")] = None,
    tp: Annotated[int | None, _degree("--tp", "Tensor-parallel ranks.")] = None,
    cp: Annotated[int | None, _degree("--cp", "Context-parallel ranks.")] = None,
    pp: Annotated[int | None, _degree("--pp", "Pipeline stages.")] = None,
    virtual_stages: Annotated[
        int | None, _degree("--virtual-stages", "Interleaved parts of the model on each pipeline stage.")
    ] = None,
    zero: Annotated[
        int | None, typer.Option("--zero", min=0, max=3, help="ZeRO stage; 3 is FSDP.", show_default=False)
    ] = None,
    microbatch: Annotated[int | None, _degree("--microbatch", "Sequences per microbatch.")] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            metavar="N",
            help="Sequences per step over all ranks.  [default: one microbatch per data-parallel rank]",
            show_default=False,
        ),
    ] = None,
    seq: Annotated[
        int | None, typer.Option("--seq", min=1, metavar="N", help="Tokens per sequence.", show_default=False)
    ] = None,
    dtype: Annotated[DtypeOption | None, _choice("--dtype", "Dtype of matmuls.", "bf16")] = None,
    precision: Annotated[
        Precision | None,
        _choice("--precision", "Parameters and states in fp32; with fp32 master weights; or all in dtype.", "autocast"),
    ] = None,
    recompute: Annotated[Recompute | None, _choice("--recompute", "Activation checkpointing.", "none")] = None,
    optimizer: Annotated[Optimizer | None, _choice("--optimizer", "Optimizer, for its states.", "adamw")] = None,
    compiled: Annotated[
        bool | None,
        typer.Option(
            "--compiled/--eager",
            help="With or without torch.compile.  [default: either, with wider ranges]",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict step time and memory from a description.

    Shows FLOPs per step, memory per rank by owner and whether it fits, communication per process group, and step time
    as a range, with what limits it. Parameters, gradients and optimizer states are exact.
    """
    from dataclasses import replace

    from lostflops.api import estimate_on

    chosen: dict[str, Any] = {"dp": dp, "tp": tp, "cp": cp, "pp": pp, "zero": zero}
    chosen |= {"virtual_stages": virtual_stages}
    chosen |= {"microbatch": microbatch, "batch": batch, "sequence": seq, "dtype": dtype}
    chosen |= {"precision": precision, "recompute": recompute, "optimizer": optimizer, "compiled": compiled}
    answer, ranks, per_host = estimate_on(
        model, device=device, topology=topology, calibration=calibration, memory=memory, job=chosen
    )
    show(replace(answer, next_command=_next(ranks, per_host)), as_json)


def _next(ranks: int, per_host: int) -> str:
    hosts = -(-ranks // per_host)
    nodes = f"--nnodes={hosts} " if hosts > 1 else ""
    return f"lostflops run -- torchrun {nodes}--nproc-per-node={min(ranks, per_host)} train.py"
