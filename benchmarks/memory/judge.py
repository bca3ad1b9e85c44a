"""How far the ledger is from the truth in a job: of all ranks, the farthest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STATIC = ("parameters", "gradients", "optimizer_state")
LIMITS = {**dict.fromkeys(STATIC, 0.01), "activations": 0.05, "unattributed": 0.05, "peak": 0.05}

SAME = 0.001


def judged(result: Mapping[str, Any]) -> dict[str, Any]:
    """Errors are signed shares of the truth; `place` is whether phase and module of the peak are equal."""
    ranks = result["ranks"]
    found: dict[str, Any] = {name: _farthest(_error(one, name, name) for one in ranks) for name in STATIC}
    found["activations"] = _farthest(one["ledger"]["saved"] / kept_for_backward(one["truth"]) - 1 for one in ranks)
    found["saved"] = _farthest(one["ledger"]["saved"] / one["truth"]["saved"][0] - 1 for one in ranks)
    found["unattributed"] = max(one["ledger"]["unattributed"] for one in ranks)
    found["peak"] = _farthest(_error(one, "peak", "recorded_peak") for one in ranks)
    alike = [one for one in ranks if is_alike(one["truth"])]
    found["alike"] = len(alike)
    for part in ("phase", "module"):
        found[part] = all(one["ledger"][part] == one["truth"][part] for one in alike)
    return found


def is_alike(truth: Mapping[str, Any]) -> bool:
    """Whether both runs had the same peak. Threads of gloo hold buffers for as long as they take, so that it differs
    from run to run, and its place with it."""
    return bool(abs(truth["recorded_peak"] / truth["peak"] - 1) < SAME)


def kept_for_backward(truth: Mapping[str, Any]) -> int:
    return int(truth["saved"][0] + truth["generator_states"])


def missed(found: Mapping[str, Any]) -> list[str]:
    """What is outside of the limits."""
    far = [name for name, most in LIMITS.items() if abs(found[name]) > most]
    far += [] if found["alike"] else ["no rank to compare places of"]
    return far + [name for name in ("phase", "module") if not found[name]]


def _error(one: Mapping[str, Any], name: str, true: str) -> float:
    return float(one["ledger"][name] / one["truth"][true] - 1)


def _farthest(errors: Any) -> float:
    return float(max(errors, key=abs))
