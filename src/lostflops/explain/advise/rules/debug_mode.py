"""A debug mode is on: anomaly mode, checked collectives, blocking launches, a Python debugger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lostflops.account.ledger.lines import COMM_LINES
from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Evidence
from lostflops.core.units import format_share
from lostflops.explain.advise.claim import Claim, Place
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.signs.job_facts import job_facts
from lostflops.explain.advise.signs.machine import machine
from lostflops.explain.advise.signs.pressure import stretch
from lostflops.explain.advise.signs.series import series

if TYPE_CHECKING:
    from lostflops.explain.advise.case import Case

_NAN: Final = """
    select rank, sum(dur) from events where kind = 'op' and name in ('aten::isnan', 'aten::_is_any_true')
    and step is not null group by rank"""
_NODES: Final = """
    select count(*) / nullif(count(distinct (rank, step)), 0) from events
    where name like 'autograd::engine::evaluate_function:%' and {which} and step is not null"""
_BESIDE: Final = 1.2
"""A graph node with a traceback takes this many times the time to create the traceback longer: objects that hold it are
created and freed too. An assumption: in separate runs of one job, with and without the mode, the whole cost was 54% of
a step."""
_FEWEST_FRAMES: Final = 8
"""The stack in a forward pass has at least this many frames, also if no sample shows it."""
_FORWARD: Final = re.compile(r"(?:\S*\.)?forward ")
_IDLE: Final = ("idle.host", "idle.python", "idle.sync")


def _find(case: Case) -> Iterator[Claim]:
    by_rank = job_facts(case, "debug_modes")
    modes: dict[str, Any] = {}
    for values in by_rank.values():
        for value in values:
            modes |= value
    ranks = tuple(sorted(by_rank))
    if "anomaly" in modes and _is_on_in_window(case, modes):
        yield _anomaly(case, modes, ranks)
    for mode, (what, lines, fix) in _BOUNDED.items():
        if mode in modes:
            yield _claim_upper_limit(case, what, lines, fix, ranks)
    blocking = machine(case).pick(gpu="CUDA_LAUNCH_BLOCKING")  # the variable does nothing on a CPU
    if blocking and "launch_blocking" in modes:
        what = f"{blocking}=1 makes the host wait for every kernel"
        yield _claim_upper_limit(
            case, what, _IDLE, f"Unset {blocking}. Set it only to find which kernel failed.", ranks
        )


def _is_on_in_window(case: Case, modes: dict[str, Any]) -> bool:
    """Return whether profiled steps show the mode too: programs turn it on for a few steps. Its checks for NaN are ops;
    without them nothing shows that it is still on."""
    return modes["anomaly"] == "check_nan" and bool(case.run.rows(_NAN))


def _anomaly(case: Case, modes: dict[str, Any], ranks: tuple[int, ...]) -> Claim:
    nan = dict(case.run.rows(_NAN))
    checks = sum(nan.values()) / (case.wall or 1)
    nodes, frames = _nodes(case), _frames(case)
    tracebacks = _tracebacks(case, _BESIDE * nodes * frames * modes.get("frame_ns", 0))
    most = min(checks * _slowdown(case) + tracebacks, 0.95)
    taken: dict[Place, int] = {(rank, "compute"): int(ns) for rank, ns in nan.items() if rank in case.lines}
    return Claim(
        cause="debug_mode",
        what=f"Autograd anomaly detection is on and costs at most {format_share(most)} of the step.",
        taken=taken,
        evidence=(
            Evidence(
                f"torch.is_anomaly_enabled() is True in backward passes; NaN checks take {format_share(checks)} of the "
                "profiled steps",
                ranks=ranks,
                steps=tuple(sorted(case.total.steps)),
            ),
            Evidence(
                f"each of {nodes:.0f} graph nodes stores a traceback of {frames} frames, at "
                f"{modes.get('frame_ns', 0) / 1000:.3g} us of CPU time per frame: {format_share(tracebacks)} of the "
                "step"
            ),
        ),
        strength=Strength.STRONG,
        certain_if=(
            "run some steps with torch.autograd.set_detect_anomaly(False): they must get shorter by the expected gain."
        ),
        fix=(
            "Remove torch.autograd.set_detect_anomaly(True) and torch.autograd.detect_anomaly() from the training "
            "loop (Lightning: Trainer(detect_anomaly=False)). Turn it on only for a few steps, to find a NaN."
        ),
        saving=Estimate.bound(
            most,
            "the time of NaN checks in the profiled steps, plus the number of tracebacks times the cost of each",
        ),
        instead_of=("host_bound", "host_python", "copies", "unfused", "small_batch", "sync"),
    )


def _nodes(case: Case) -> float:
    """Return the number of nodes in a step's graph; DDP keeps those that accumulate gradients, otherwise they are
    created in each step."""
    which = "name not like '%AccumulateGrad'" if job_facts(case, "ddp") else "true"
    ((found,),) = case.run.rows(_NODES.format(which=which))
    return float(found or 0)


def _frames(case: Case) -> int:
    """Return the median depth of stacks in forward passes: a traceback has as many frames."""
    depths = [
        stack.count(";") + 1
        for stacks in case.total.samples.values()
        for stack, count in stacks.items()
        for _ in range(count)
        if any(_FORWARD.match(frame) for frame in stack.split(";"))
    ]
    return max(int(np.median(depths)) if depths else 0, _FEWEST_FRAMES)


def _tracebacks(case: Case, cpu: float) -> float:
    """Return the share of a step that this much CPU time takes, including the thread's waits for a core."""
    timed = series(case)
    settled = timed.ns[timed.settled]
    return min(cpu * stretch(case) / float(np.median(settled)), 0.9) if settled.size else 0.0


def _slowdown(case: Case) -> float:
    """Return the CPU time of the training thread in a profiled step, as a multiple of a settled one; 1 if unknown."""
    timed = series(case)
    used = timed.column("cpu")
    inside = np.isin(timed.step, sorted(case.total.steps))
    if not (np.isfinite(used[inside]).any() and np.isfinite(used[timed.settled]).any()):
        return 1.0
    return max(float(np.nanmedian(used[inside]) / max(np.nanmedian(used[timed.settled]), 1.0)), 1.0)


_BOUNDED: Final = {
    "distributed": (
        "TORCH_DISTRIBUTED_DEBUG=DETAIL makes all ranks check every collective before it runs",
        COMM_LINES,
        "Unset TORCH_DISTRIBUTED_DEBUG, or set it to OFF.",
    ),
    "python_tracing": (
        "A debugger or coverage tool traces every line of Python",
        _IDLE,
        "Run without the debugger or coverage tool: sys.gettrace() must return None in the training thread.",
    ),
    "python_dev_mode": (
        "Python's development mode is on (-X dev)",
        _IDLE,
        "Run without -X dev, and unset PYTHONDEVMODE.",
    ),
}
"""Modes on any machine with a cost that only a run without them shows: text, ledger lines that they lengthen, and
fix."""


def _claim_upper_limit(case: Case, what: str, lines: tuple[str, ...], fix: str, ranks: tuple[int, ...]) -> Claim:
    most = sum(case.total.lines[line] for line in lines) / (case.wall or 1)
    return Claim(
        cause="debug_mode",
        what=f"{what}: it costs at most {format_share(most)} of the time of all ranks.",
        taken={(rank, line): own[line] for rank, own in case.lines.items() for line in lines if own.get(line, 0)},
        evidence=(Evidence(f"it is on in the training process, and may lengthen {', '.join(lines)}", ranks=ranks),),
        strength=Strength.STRONG,
        certain_if="run the job without it: steps must get shorter.",
        fix=fix,
        suspected="The cost of the mode can only be measured by a run without it.",
    )


RULE: Final = Rule(
    cause="debug_mode",
    about=(
        "Debug modes cost time in every step: anomaly detection stores a Python traceback for every op and checks "
        "every gradient for NaN, TORCH_DISTRIBUTED_DEBUG=DETAIL makes all ranks check every collective before it "
        "runs, blocking launches make the host wait for every kernel. Such a mode is often turned on to find one "
        "error and then forgotten."
    ),
    find=_find,
)
