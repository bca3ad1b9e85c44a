"""Metrics as a text file that the textfile collector of Prometheus' node exporter reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from lostflops.live.metrics import Labels, Metric, Sample


def text(metrics: Mapping[Metric, list[Sample]]) -> str:
    """Return the metrics in the exposition format, version 0.0.4.

    >>> metric = Metric("lostflops_step_seconds", "Time of a step.", "s")
    >>> print(text({metric: [((("rank", "3"),), 0.25)]}), end="")
    # HELP lostflops_step_seconds Time of a step.
    # TYPE lostflops_step_seconds gauge
    lostflops_step_seconds{rank="3"} 0.25
    """
    lines = []
    for metric, samples in metrics.items():
        lines.append(f"# HELP {metric.name} {metric.help}")
        lines.append(f"# TYPE {metric.name} {metric.type}")
        lines.extend(f"{metric.name}{_labels(labels)} {_number(value)}" for labels, value in samples)
    return "".join(f"{line}\n" for line in lines)


def write(path: Path, metrics: Mapping[Metric, list[Sample]]) -> None:
    """Replace the file at once: a reader sees the old text or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text(metrics), encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels) + "}" if labels else ""


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
