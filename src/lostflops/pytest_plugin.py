"""A fixture that gates a test suite on the speed of a job: `pytest_plugins = ["lostflops.pytest_plugin"]`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

Runs = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@pytest.fixture
def lostflops_gate() -> Callable[..., dict[str, Any]]:
    """Fail the test if the candidate regressed; skip it if inconclusive, or fail then too with `strict`.

    def test_speed(lostflops_gate):
        lostflops_gate(baseline=["main-1", "main-2"], candidate=["new-1", "new-2"], max_regress=0.03)

    Returns what `lostflops gate --json` prints.
    """
    return _gate_runs


def _gate_runs(
    *, baseline: Runs, candidate: Runs, max_regress: float = 0.03, anyway: bool = False, strict: bool = False
) -> dict[str, Any]:
    from lostflops.explain.compare.gate import GateOutcome, gate  # noqa: PLC0415 - only where a test asks
    from lostflops.explain.compare.sides import read_pair  # noqa: PLC0415

    result, found = gate(read_pair(_paths(baseline), _paths(candidate), anyway=anyway), max_regress)
    if found is GateOutcome.REGRESSED or (strict and found is GateOutcome.INCONCLUSIVE):
        pytest.fail(result.verdict, pytrace=False)
    if found is GateOutcome.INCONCLUSIVE:
        pytest.skip(result.verdict)
    return result.to_json()


def _paths(runs: Runs) -> list[Path]:
    return [Path(runs)] if isinstance(runs, str | os.PathLike) else [Path(run) for run in runs]
