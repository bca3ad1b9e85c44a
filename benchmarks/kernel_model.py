"""How well does the kernel model predict devices that it has not seen?

    python benchmarks/kernel_model.py fit DATA                  # constants of predict/costs/kernels/constants.py
    python benchmarks/kernel_model.py score DATA --json scores.json

DATA is a folder with the measurements of NeuSight (kernels_train.parquet, kernels_test.parquet, model_ops.parquet,
models.csv, published/). `score` fits once for each device, without any kernel of that device or of its siblings, and
predicts its kernels, its jobs, jobs on four devices, and which device is fastest. Needs `pip install scipy`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from scipy.optimize import least_squares

from lostflops.account.facts.devices import Device, find_device
from lostflops.predict.costs.kernels.constants import Constants
from lostflops.predict.costs.kernels.model import KernelWork, kernel_times

SIBLINGS = {
    "MI210": ("MI250 (one GCD)",), "MI250 (one GCD)": ("MI210",),
    "A100-PCIe-40GB": ("A100-PCIe-80GB", "A100-SXM4-40GB"), "A100-PCIe-80GB": ("A100-PCIe-40GB", "A100-SXM4-40GB"),
    "A100-SXM4-40GB": ("A100-PCIe-40GB", "A100-PCIe-80GB"),
}  # fmt: skip
"""Devices with the same chip, which are held out together: MI210 is one die of MI250."""
CLASSES = {"bmm": "batched matmul", "linear": "matmul", "conv": "convolution", "softmax": "softmax", "ln": "layer norm"}
SHORTEST_NS = 60_000.0
"""Shorter measurements are mostly the time to launch."""
EACH = 250
"""Kernels of each device, operation and table that the fit uses."""
# What physics and data sheets say before any measurement, and how sure that is (standard deviation, of the logarithm).
PRIORS = {
    "energy_pj": (9.0, 0.3),
    "energy_slope": (1.1, 0.15),
    "narrow_share": (0.95, 0.05),
    "wide_share": (0.85, 0.06),
    "old_share": (0.8, 0.15),
    "matrix_share": (0.8, 0.1),
    "matrix_energy": (0.7, 0.3),
    "tile_edge": (2.5, 0.5),
    "ramp": (30.0, 0.5),
    "product_memory": (0.7, 0.2),
    "overlap": (3.0, 0.3),
    "stream_memory": (0.82, 0.1),
    "row_memory": (0.75, 0.15),
    "row_reuse": (2.0, 0.7),
    "convolution_share": (0.8, 0.3),
    "launch_ns": (25_000.0, 1.0),
}
PRIOR_WEIGHT = 1000.0
"""Kernels that a prior counts as."""


class Measured:
    """Kernels of one device."""

    def __init__(self, device: Device, rows: Sequence[dict[str, Any]]) -> None:
        self.device = device
        self.works = [_work(row) for row in rows]
        self.ns = np.array([row["latency_ms"] for row in rows]) * 1e6
        self.names = np.array([CLASSES.get(row["op"], "elementwise") for row in rows])

    def error(self, known: Constants) -> np.ndarray[Any, Any]:
        """The logarithm of predicted over measured."""
        return np.log((kernel_times(self.device, self.works, known) + known.launch_ns) / self.ns)


def _work(row: dict[str, Any]) -> KernelWork:
    size = {name: int(row[name] or 1) for name in ("b", "m", "n", "k", "h")}
    if row["op"] in ("bmm", "linear"):
        b, m, n, k = (size[name] for name in "bmnk")
        return KernelWork("matmul", "fp32", 2 * b * m * n * k, 4 * b * (m * k + k * n + m * n), batch=b, m=m, n=n, k=k)
    if row["op"] == "conv":
        side = (row["input_size"] + 2 * row["padding"] - row["kernel_size"]) // row["stride"] + 1
        m, n, k = size["b"] * side**2, row["c_out"], row["c_in"] * row["kernel_size"] ** 2
        return KernelWork("convolution", "fp32", 2 * m * n * k, 4 * (m * k + k * n + m * n), m=m, n=n, k=k)
    kind = "normalisation" if row["op"] in ("softmax", "ln") else "elementwise"
    tensors = 3 if row["op"] in ("add", "mul", "div", "pow") else 2
    return KernelWork(kind, "fp32", 0, 4 * tensors * size["b"] * size["h"], n=size["h"])


def read(folder: Path, each: int) -> list[Measured]:
    """A sample of the kernels: at most `each` of a device, operation and table."""
    files = f"'{folder}/kernels_train.parquet', '{folder}/kernels_test.parquet'"
    query = f"""
        select * from read_parquet([{files}], union_by_name = true, filename = true)
        where latency_ms * 1e6 > {SHORTEST_NS}
          and not (op = 'conv' and device like '%A100%') -- in tf32, which PyTorch uses there by default
        qualify {each} >= row_number() over (
            partition by device, op, filename order by hash(latency_ms, b, m, n, k, h)
        )"""
    found = duckdb.sql(query)
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    by_device: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_device.setdefault(row["device"], []).append(row)
    return [Measured(device_of(name), own) for name, own in sorted(by_device.items())]


def device_of(name: str) -> Device:
    device = find_device(name)
    assert device, name
    return device


def fit(kernels: Iterable[Measured]) -> Constants:
    """Least squares of the logarithm, robust, each device with the same weight, in the logarithm of each constant.

    Starts at what is known before any measurement, so that nothing of a device that is held out gets into it.
    """
    kernels = [one for one in kernels if one.device.chip]
    names = [field.name for field in fields(Constants)]
    weights = [np.sqrt(np.mean([len(other.works) for other in kernels]) / len(one.works)) for one in kernels]
    middle = np.log([PRIORS[name][0] for name in names])
    spread = np.array([PRIORS[name][1] for name in names])

    def miss(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        known = Constants(*np.exp(values))
        own = [weight * one.error(known) for one, weight in zip(kernels, weights, strict=True)]
        return np.concatenate([*own, np.sqrt(PRIOR_WEIGHT) * 0.2 * (values - middle) / spread])

    done = least_squares(miss, middle, loss="soft_l1", f_scale=0.2, x_scale=spread, xtol=1e-4, max_nfev=60)
    assert done.status > 0, "the fit has not converged"
    return Constants(*(float(f"{value:.4g}") for value in np.exp(done.x)))


def unseen(kernels: list[Measured], device: Device) -> Constants:
    """Constants from all other devices."""
    hidden = {device.name, *SIBLINGS.get(device.name, ())}
    return fit([one for one in kernels if one.device.name not in hidden])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", choices=("fit", "score"))
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    kernels = read(asked.data, EACH)
    known = fit(kernels)
    print("\n".join(f"    {name}={value:g}," for name, value in asdict(known).items()), flush=True)
    if asked.what == "score":
        from kernel_scores import score  # noqa: PLC0415

        result = score(asked.data, kernels)
        if asked.json:
            asked.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
