"""Scores of the kernel model on devices that its constants have not seen; used by kernel_model.py."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from kernel_model import Measured, device_of, read, unseen
from model_jobs import Job, read_jobs, read_ops
from tensor_parallel import time_four

from lostflops.account.facts.devices import Device
from lostflops.predict.costs.kernels.constants import Constants
from lostflops.predict.costs.kernels.model import KernelWork, kernel_times

MANY = 1500
MODELS = {"BERT-Large": "bert_large", "GPT2-Large": "gpt2_large", "GPT3-XL": "gpt3_xl", "OPT-1.3B": "opt_13",
          "GPT3-2.7B": "gpt3_27"}  # fmt: skip
PUBLISHED = {"NVIDIA_H100_80GB_HBM3": "H100-SXM5", "NVIDIA_L4": "L4", "NVIDIA_A100_80GB_PCIe": "A100-PCIe-80GB",
             "NVIDIA_A100-PCIE-40GB": "A100-PCIe-40GB", "Tesla_V100-PCIE-32GB": "V100-PCIe", "Tesla_P100-PCIE-16GB":
             "P100-PCIe", "Tesla_T4": "T4", "Tesla_P4": "P4", "MI250": "MI250 (one GCD)"}  # fmt: skip
SHOWN = ("L4", "A100-PCIe-80GB", "H100-SXM5", "MI250 (one GCD)", "V100-PCIe", "A100-PCIe-40GB", "T4", "P100-PCIe", "P4",
         "MI210", "MI100")  # fmt: skip
FOUR = ("A100-SXM4-40GB",)


def score(folder: Path, kernels: list[Measured]) -> dict[str, Any]:
    jobs = read_jobs(folder)
    constants = {name: unseen(kernels, device_of(name)) for name in (*SHOWN, *FOUR)}
    result = {
        "kernels": list(_kernel_errors(read(folder, MANY), constants)),
        "ops": list(_op_errors(folder, constants)),
        "jobs": _job_errors(jobs, constants, read_published(folder / "published")),
        "four": list(_four(folder, jobs, constants)),
        "choice": _choice(jobs, constants),
    }
    _print(result)
    return result


def roofline(device: Device, works: list[KernelWork]) -> np.ndarray[Any, Any]:
    peak, bandwidth = device.peaks["fp32"] * 1e3, device.memory_gbs or np.nan
    return np.array([max(work.flops / peak, work.bytes / bandwidth) for work in works])


def _kernel_errors(kernels: list[Measured], constants: dict[str, Constants]) -> Iterator[dict[str, Any]]:
    for one in kernels:
        if one.device.name not in constants:
            continue
        known = constants[one.device.name]
        mine = np.abs(np.exp(one.error(known)) - 1)
        roof = np.abs(roofline(one.device, one.works) / one.ns - 1)
        for name in dict.fromkeys(one.names.tolist()):
            own = one.names == name
            yield {"device": one.device.name, "class": name, "kernels": int(own.sum()),
                   "error": float(mine[own].mean()), "roofline": float(roof[own].mean())}  # fmt: skip


def _op_errors(folder: Path, constants: dict[str, Constants]) -> Iterator[dict[str, Any]]:
    """Forward ops of the jobs that take 50 us or more."""
    for (name, label), rows in read_ops(folder).items():
        device = device_of(name)
        works, ns = [row[0] for row in rows], np.array([row[1] for row in rows]) * 1e6
        mine = np.abs(kernel_times(device, works, constants[device.name]) / ns - 1)
        roof = np.abs(roofline(device, works) / ns - 1)
        yield {"device": device.name, "class": label, "ops": len(rows), "error": float(mine.mean()),
               "roofline": float(roof.mean())}  # fmt: skip


def predict_ms(job: Job, device: Device, known: Constants) -> float:
    works, counts = zip(*job.works(), strict=True)
    return max(float(kernel_times(device, works, known) @ np.array(counts)), job.host_ns()) / 1e6


def _job_errors(
    jobs: list[Job], constants: dict[str, Constants], published: dict[tuple[str, str], float]
) -> list[dict[str, Any]]:
    rows = []
    for job in jobs:
        device = device_of(job.device)
        ratio = predict_ms(job, device, constants[device.name]) / job.total_ms
        rows.append({"device": device.name, "job": job.name, "ms": job.total_ms, "ratio": ratio,
                     "neusight": published.get((device.name, job.name))})  # fmt: skip
    for row in rows:
        others = [abs(np.log(other["ratio"])) for other in rows if other["device"] != row["device"]]
        row["half_width"] = float(np.quantile(others, 0.9))
        row["inside"] = bool(abs(np.log(row["ratio"])) <= row["half_width"])
    return rows


def read_published(folder: Path) -> dict[tuple[str, str], float]:
    """Errors that NeuSight published, in percent, by device and job."""
    found: dict[tuple[str, str], float] = {}
    for path in ("nvidia_train.csv", "nvidia_inf.csv", "amd_train.csv", "amd_inf.csv"):
        mode, device, models, batches = ("train" if "train" in path else "inf"), "", [], []
        for row in csv.reader((folder / path).read_text().splitlines()):
            head = row[0] if row else ""
            if head in PUBLISHED and len(row) == 1:
                device = PUBLISHED[head]
            elif len(row) > 1 and row[1] in MODELS:
                models = row[1:]
            elif head.startswith("Batch"):
                batches = row[1:]
            elif head == "NeuSight" or head in PUBLISHED:
                found |= dict(_cells(PUBLISHED.get(head, device), mode, models, batches, row[1:]))
    return found


def _cells(
    device: str, mode: str, models: list[str], batches: list[str], cells: list[str]
) -> Iterator[tuple[tuple[str, str], float]]:
    model = ""
    for title, batch, cell in zip(models, batches, cells, strict=False):
        model = title or model
        if cell and model in MODELS:
            sequence = 512 if "BERT" in model else 1024 if "GPT2" in model else 2048
            yield (device, f"{MODELS[model]}-{mode}-{sequence}-{batch}"), float(cell.rstrip("%"))


def _four(folder: Path, jobs: list[Job], constants: dict[str, Constants]) -> Iterator[dict[str, Any]]:
    rows = duckdb.sql(
        f"select device, job, e2e_ms from '{folder}/models.csv' where job similar to '.*[dtp]p4.*'"
    ).fetchall()
    for name, job, measured in sorted(rows):
        device, known = device_of(name), constants[device_of(name).name]
        found = re.fullmatch(r"(\w+)-train-(\d+)-(\d+)-([dtp])p4.*", job)
        assert found
        model, sequence, batch, how = found[1], found[2], int(found[3]), found[4]
        base = next(one for one in jobs if one.name.startswith(f"{model}-train-{sequence}-"))
        predicted = time_four(base, batch, how, device, known)
        yield {
            "device": device.name,
            "job": job,
            "ms": measured,
            "predicted_ms": predicted,
            "ratio": predicted / measured,
        }


def _choice(jobs: list[Job], constants: dict[str, Constants]) -> dict[str, Any]:
    """How much longer a job takes on the device that we would choose than on the fastest that was measured."""
    by_job: dict[str, list[tuple[float, float]]] = {}
    for job in jobs:
        device = device_of(job.device)
        by_job.setdefault(job.name, []).append((predict_ms(job, device, constants[device.name]), job.total_ms))
    regrets = [min(pairs)[1] / min(ms for _, ms in pairs) - 1 for pairs in by_job.values() if len(pairs) >= 4]
    wrong = pairs_wrong = pairs_all = 0
    for pairs in by_job.values():
        if len(pairs) >= 4:
            wrong += min(pairs)[1] > min(ms for _, ms in pairs)
            for at, (mine, ms) in enumerate(pairs):
                for other, other_ms in pairs[:at]:
                    pairs_all += 1
                    pairs_wrong += (mine < other) != (ms < other_ms)
    return {"jobs": len(regrets), "regret": float(np.mean(regrets)), "wrong": wrong, "pairs": pairs_all,
            "pairs_wrong": pairs_wrong}  # fmt: skip


def _print(result: dict[str, Any]) -> None:
    for part, label in (("kernels", "kernels"), ("ops", "ops")):
        print(f"\n| device | class | {label} | error | roofline |\n|---|---|--:|--:|--:|")
        for row in result[part]:
            print(f"| {row['device']} | {row['class']} | {row[label]:,} | {row['error']:.1%} | {row['roofline']:.1%} |")
    print("\n| device | jobs | error | NeuSight, same jobs | inside |\n|---|---|--:|--:|--:|")
    for device in SHOWN:
        for mode in ("train", "inf"):
            rows = [row for row in result["jobs"] if row["device"] == device and f"-{mode}-" in row["job"]]
            if rows:
                both = [row for row in rows if row["neusight"] is not None]
                error = np.mean([abs(row["ratio"] - 1) for row in rows])
                same = np.mean([abs(row["ratio"] - 1) for row in both]) if both else np.nan
                theirs = np.mean([row["neusight"] for row in both]) / 100 if both else np.nan
                inside = sum(row["inside"] for row in rows)
                print(f"| {device} | {len(rows)} {mode} | {error:.1%} | {same:.1%} beside {theirs:.1%} ({len(both)}) "
                      f"| {inside} of {len(rows)} |")  # fmt: skip
    errors = [abs(row["ratio"] - 1) for row in result["jobs"]]
    inside = sum(row["inside"] for row in result["jobs"])
    print(f"\nall jobs: {np.mean(errors):.1%}, inside {inside} of {len(errors)} ({inside / len(errors):.0%}), "
          f"half width {np.mean([row['half_width'] for row in result['jobs']]):.2f}")  # fmt: skip
    print("\n| device | job | measured ms | predicted ms | error |\n|---|---|--:|--:|--:|")
    for row in result["four"]:
        print(
            f"| {row['device']} | {row['job']} | {row['ms']:.1f} | {row['predicted_ms']:.1f} "
            f"| {row['ratio'] - 1:+.1%} |"
        )
    print(f"\nfour devices: mean error {np.mean([abs(row['ratio'] - 1) for row in result['four']]):.1%}")
    print(f"choice: {result['choice']}")
