"""How far estimates are from models that torch counts, and from training logs.

    python benchmarks/estimate.py --logs ../shared/traces/pytorch__torchtitan/autoresearch-may19-qwen3-14b

With torch: parameters, gradients, optimizer states (bytes) and FLOPs of three transformers written in plain torch, and
of Hugging Face's where transformers is installed. Published: tokens per second of Llama models on A100 and H100, as
torchtitan reports them. With logs: rank correlation and error of tokens per second over runs of Qwen3-14B on 8 B200
that differ in batch, sequence, mesh, recomputation, attention and parts of the loss; what memory they took, and
whether those that ran out of memory were told not to fit. No constant is fitted to the logs. Exit code 1 means that a
figure is beyond its limit.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import re
import sys
import tarfile
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from lostflops.predict.estimate.demand import estimate_demand
from lostflops.predict.estimate.description import ModelDescription, PlannedJob, convert
from lostflops.predict.estimate.estimate import LaunchEstimate, PlannedMachine, estimate
from lostflops.predict.estimate.huggingface import model_of
from lostflops.predict.estimate.machine import machine
from lostflops.predict.estimate.memory import memory
from lostflops.predict.estimate.work import model_flops

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
LOGS = ROOT.parent / "shared" / "traces" / "pytorch__torchtitan" / "autoresearch-may19-qwen3-14b"
LINE = re.compile(r"step:\s*(\d+).*?tps: ([\d,]+)")
FLOPS_LIMIT = 0.01
NEARLY_FULL = 172 * 2**30
"""Of the 178 GiB of these devices."""
SHARES = ("flops", "error")
CORRELATION_LIMIT = 0.7
QWEN3_14B = {
    "name": "qwen3 14B",
    "layers": 40,
    "hidden": 5120,
    "heads": 40,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 17408,
    "vocabulary": 151936,
    "qk_norm": True,
}

_LLAMA3 = {"kv_heads": 8, "vocabulary": 128256}
MODELS: dict[str, dict[str, Any]] = {
    "Llama 3 8B": {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 14336, **_LLAMA3},
    "Llama 3 70B": {"layers": 80, "hidden": 8192, "heads": 64, "ffn": 28672, **_LLAMA3},
    "Llama 2 13B": {"layers": 40, "hidden": 5120, "heads": 40, "ffn": 13824, "vocabulary": 32000},
    "Llama 2 70B": {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocabulary": 32000},
}
_H100 = {"sequence": 8192, "microbatch": 2, "recompute": "selective"}
PUBLISHED: tuple[tuple[str, str, int, dict[str, Any], float], ...] = (
    ("Llama 3 8B", "A100-SXM4-80GB", 64, {"sequence": 8192, "recompute": "selective"}, 2973),
    ("Llama 3 70B", "A100-SXM4-80GB", 64, {"sequence": 8192, "recompute": "full"}, 331),
    ("Llama 2 13B", "A100-SXM4-80GB", 64, {"sequence": 4096, "microbatch": 2}, 2162),
    ("Llama 2 13B", "A100-SXM4-80GB", 64, {"sequence": 4096, "microbatch": 2, "recompute": "selective"}, 1904),
    ("Llama 2 70B", "A100-SXM4-80GB", 64, {"sequence": 4096, "recompute": "selective"}, 355),
    ("Llama 2 70B", "A100-SXM4-80GB", 64, {"sequence": 4096, "microbatch": 2, "recompute": "full"}, 353),
    ("Llama 3 8B", "H100-SXM5", 8, {**_H100, "compiled": False}, 5762),
    ("Llama 3 8B", "H100-SXM5", 8, {**_H100, "compiled": True}, 6667),
    ("Llama 3 8B", "H100-SXM5", 128, {**_H100, "compiled": False}, 5605),
    ("Llama 3 8B", "H100-SXM5", 128, {**_H100, "compiled": True}, 6514),
)
"""Model, device, FSDP ranks, job, tokens per second and rank: torchtitan's docs/performance.md (2024) for A100 and its
benchmarks/llama3_h100_202412_torchtitan.md for H100, eager and compiled. Those H100 were limited to 500 W of 700 and
have 2.4 TB/s of memory bandwidth instead of 3.35."""


def against_published() -> list[dict[str, Any]]:
    rows = []
    for name, device, ranks_, fields, tokens in PUBLISHED:
        known = machine("bf16", device=device, topology=None, calibration=None, memory=None)
        job = convert({"dp": ranks_, "zero": 3, **fields}, PlannedJob, name)
        rate = estimate(estimate_demand(convert(MODELS[name], ModelDescription, name), job, 8), known).tokens_per_second
        assert rate is not None
        mine = rate * (1 / ranks_)
        row = {"model": name, "device": device, "ranks": ranks_, "published": tokens, "low": round(mine.low)}
        is_inside = mine.low <= tokens <= mine.high
        rows.append(row | {"high": round(mine.high), "error": mine.middle / tokens - 1, "inside": is_inside})
    return rows


def counted_by_torch() -> list[dict[str, Any]]:
    from predict.estimate.plain_models import PLAIN, count  # noqa: PLC0415

    made = [(name, convert(fields, ModelDescription, name), factory) for name, (factory, fields) in PLAIN.items()]
    if find_spec("transformers"):
        from predict.estimate.hugging_face_models import CONFIGS, build  # noqa: PLC0415

        made += [(name, model_of(config, name), lambda name=name: build(name)) for name, config in CONFIGS.items()]
    rows = []
    for name, model, factory in made:
        for optimizer in ("adamw", "sgd-momentum"):
            job = PlannedJob(sequence=24, microbatch=3, dtype="fp32", optimizer=optimizer)
            found, held = count(factory(), 3, 24, optimizer), memory(model, job, 0)
            rows.append(
                {
                    "model": name,
                    "optimizer": optimizer,
                    "parameters": held.parameters - found.parameters,
                    "gradients": held.gradients - found.gradients,
                    "states": held.optimizer - found.optimizer,
                    "flops": model_flops(model, job) / found.flops - 1,
                }
            )
    return rows


@dataclass(frozen=True)
class Logged:
    """A run of the logs, and its estimate."""

    name: str
    configuration: tuple[Hashable, ...]
    found: LaunchEstimate
    tokens: float | None
    """Tokens per second and rank, in the last line of the log."""
    mean: float | None
    """The same over all steps after the first."""
    window: int
    """Steps between lines of the log."""
    mfu: float | None
    memory: float | None
    ran_out: bool

    @property
    def expected(self) -> float:
        """Tokens per second and rank, the middle of the range."""
        return self.rate.middle

    @property
    def rate(self) -> Any:
        rate = self.found.tokens_per_second
        assert rate is not None
        return rate * (1 / self.found.job.ranks)


def read_logs(folder: Path) -> list[Logged]:
    device = machine("bf16", device="B200", topology=None, calibration=None, memory=None)
    with (folder / "runs_extracted.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["local_bs"]]
    texts = raw_logs(folder / "run_logs.tar.gz")
    return [logged(row, texts[row["run"]], device) for row in rows]


def raw_logs(path: Path) -> dict[str, str]:
    """By the name of the run, without colours."""
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                text = content.read().decode(errors="replace")
                found[Path(member.name).parent.name] = re.sub(r"\x1b?\[[0-9;]+m", "", text)
    return found


def window_mean(text: str) -> float | None:
    """Tokens per second and rank over all steps after the first: a line of the log is a mean since the line before."""
    lines = [(int(step), float(rate.replace(",", ""))) for step, rate in LINE.findall(text)]
    steps = [(step - before, rate) for (before, _), (step, rate) in pairwise(lines)]
    return sum(count for count, _ in steps) / sum(count / rate for count, rate in steps) if steps else None


def logged(row: dict[str, str], text: str, device: PlannedMachine) -> Logged:
    fields = settings(row, text)
    found = estimate(
        estimate_demand(convert(QWEN3_14B, ModelDescription, "logs"), convert(fields, PlannedJob, row["run"]), 8),
        device,
    )
    return Logged(
        name=row["run"],
        configuration=tuple(sorted(fields.items())),
        found=found,
        tokens=float(row["tps"]) if row["mfu_pct"] else None,
        mean=window_mean(text) if row["mfu_pct"] else None,
        window=int(re.search(r"log_freq=(\d+)|$", row["cmd"])[1] or 10),
        mfu=float(row["mfu_pct"]) / 100 if row["mfu_pct"] else None,
        memory=float(row["mem_gib"]) * 2**30 if row["mem_gib"] else None,
        ran_out=row["oom"] == "True",
    )


def settings(row: dict[str, str], text: str) -> dict[str, Any]:
    """What the command line and the log's own account of it state.

    Parameters are bf16 and gradients are reduced in fp32, the trainer's defaults for --training.dtype=bfloat16. Of its
    budget for recomputation only that something is recomputed is known. Which attention was used stands in the name of
    a run alone.
    """
    mesh = {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", row["mesh"])}
    option = dict(re.findall(r"--([\w.]+)=(\S+)", row["cmd"]))
    applied = re.search(r"Applied (full|memory_budget) activation checkpointing|$", text)[1]
    again = {"full": "full", "memory_budget": "selective", None: "none"}[applied]
    kept = option.get("parallelism.fsdp_reshard_after_forward") == "never"
    return {
        "sequence": int(row["seq_len"]),
        "microbatch": int(row["local_bs"]),
        "batch": int(row["global_bs"]),
        "dp": mesh["dp_replicate"] * mesh["dp_shard"],
        "replicas": mesh["dp_replicate"],
        "cp": mesh["cp"],
        "tp": mesh["tp"],
        "pp": mesh["pp"],
        "zero": 2 if kept else 3,
        "precision": "pure",
        "compiled": "--compile.enable" in row["cmd"],
        "reduce_dtype": "fp32",
        "recompute": again,
        "attention": "flex" if "flex" in row["run"] else "fused",
        "loss_chunks": int(option.get("loss.num_chunks", 8)),
    }


def against_logs(runs: Sequence[Logged]) -> dict[str, Any]:
    known = [run for run in runs if run.tokens is not None]
    groups = defaultdict(list)
    for run in known:
        groups[run.configuration].append(run)
    middles = [(group[0].expected, median(run.tokens for run in group)) for group in groups.values()]
    errors = [run.expected / run.tokens - 1 for run in known]
    convention = [run.found.demand.flops / run.found.job.step_tokens * run.tokens / 2.25e15 / run.mfu for run in known]
    return {
        "runs": len(known),
        "configurations": len(groups),
        "spearman": spearman([(run.expected, run.tokens) for run in known]),
        "spearman_of_shapes_alone": spearman([(by_shape(run), run.tokens) for run in known]),
        "spearman_of_configurations": spearman(middles),
        "spearman_of_means": spearman([(run.expected, run.mean) for run in known]),
        "spearman_window_1": spearman([(run.expected, run.tokens) for run in known if run.window == 1]),
        "spearman_window_10": spearman([(run.expected, run.tokens) for run in known if run.window == 10]),
        "best_possible_for_configurations": best_possible(known, lambda run: run.configuration),
        "best_possible_for_shapes": best_possible(known, shape),
        "median_error": median(errors),
        "median_absolute_error": median(map(abs, errors)),
        "inside_range": fmean(run.rate.low <= run.tokens <= run.rate.high for run in known),
        "range_high_over_low": median(run.rate.high / run.rate.low for run in known),
        "below_range": sum(run.tokens < run.rate.low for run in known),
        "above_range": sum(run.tokens > run.rate.high for run in known),
        "our_mfu_over_logged_min": min(convention),
        "our_mfu_over_logged_max": max(convention),
        **against_memory(runs),
    }


def by_shape(run: Logged) -> float:
    """Tokens per second if nothing were known of attention and of the parts of the loss."""
    job = msgspec.structs.replace(run.found.job, attention="fused", loss_chunks=8)
    rate = estimate(
        estimate_demand(convert(QWEN3_14B, ModelDescription, "logs"), job, 8), run.found.machine
    ).tokens_per_second
    assert rate is not None
    return rate.middle / job.ranks


def against_memory(runs: Sequence[Logged]) -> dict[str, Any]:
    held = [run for run in runs if run.memory is not None]
    full = [run for run in held if run.memory > NEARLY_FULL]
    ranges = [(run.found.fullest.memory.total, run.memory) for run in held]
    out = [run.found.fits for run in runs if run.ran_out]
    ran = [run.found.fits for run in held]
    return {
        "memory_runs": len(held),
        "nearly_full": len(full),
        "nearly_full_and_far_below_range": sum(run.tokens < 0.8 * run.rate.low for run in full),
        "others_far_below_range": sum(run.tokens < 0.8 * run.rate.low for run in held if run not in full),
        "memory_inside_range": fmean(low_high.low <= size <= low_high.high for low_high, size in ranges),
        "memory_low_over_logged": median(low_high.low / size for low_high, size in ranges),
        "memory_high_over_logged": median(low_high.high / size for low_high, size in ranges),
        "out_of_memory": len(out),
        "out_of_memory_told_to_fit": out.count("yes"),
        "ran_told_to_fit": ran.count("yes"),
        "ran_told_not_to_fit": ran.count("no"),
    }


def shape(run: Logged) -> Hashable:
    job = run.found.job
    return job.sequence, job.microbatch, job.microbatches, job.tp, job.cp, job.replicas


def ranks(values: Sequence[float]) -> list[float]:
    """Ties have the mean of their places."""
    places = defaultdict(list)
    for place, value in enumerate(sorted(values)):
        places[value].append(place)
    return [fmean(places[value]) for value in values]


def correlation(pairs: Iterable[tuple[float, float]]) -> float:
    left, right = zip(*pairs, strict=True)
    middle, other = fmean(left), fmean(right)
    shared = sum((a - middle) * (b - other) for a, b in zip(left, right, strict=True))
    return shared / math.sqrt(sum((a - middle) ** 2 for a in left) * sum((b - other) ** 2 for b in right))


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    left, right = zip(*pairs, strict=True)
    return correlation(zip(ranks(left), ranks(right), strict=True))


def best_possible(runs: Sequence[Logged], key: Callable[[Logged], Hashable]) -> float:
    """No function of `key` correlates better with the ranks of what was logged than their mean in each group."""
    places = ranks([run.tokens for run in runs])
    groups = defaultdict(list)
    for run, place in zip(runs, places, strict=True):
        groups[key(run)].append(place)
    return correlation((fmean(groups[key(run)]), place) for run, place in zip(runs, places, strict=True))


def misses(counted: list[dict[str, Any]], logs: dict[str, Any] | None) -> list[str]:
    found = [
        f"{row['model']} with {row['optimizer']}"
        for row in counted
        if row["parameters"] or row["gradients"] or row["states"] or abs(row["flops"]) > FLOPS_LIMIT
    ]
    if logs and logs["spearman"] < CORRELATION_LIMIT:
        found.append(f"rank correlation {logs['spearman']:.2f} is below {CORRELATION_LIMIT}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path, default=LOGS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    facts = {"python": platform.python_version(), "machine": platform.platform(), "cores": os.cpu_count()}
    counted = counted_by_torch() if find_spec("torch") else []
    published = against_published()
    logs = against_logs(read_logs(arguments.logs)) if arguments.logs.exists() else None
    print(" ".join(f"{name}={value}" for name, value in facts.items()))
    for row in (*counted, *published):
        print("  ".join(f"{name} {value:+.1%}" if name in SHARES else f"{name} {value}" for name, value in row.items()))
    for name, value in (logs or {}).items():
        print(f"{name:34} {value:.4g}")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({**facts, "counted": counted, "published": published, "logs": logs}, indent=1) + "\n"
        )
    failed = misses(counted, logs)
    for miss in failed:
        print(f"miss: {miss}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
