"""A run that was recorded without an accelerator, on every known one: by the shapes of its ops.

Each op of one step becomes a kernel (`op_steps`), and the kernel model gives its time on a device. A step there is the
longer of two times: that of the device, which is the sum of its kernels, and that of the host, which gets the batch and
launches each kernel, or runs Python between ops for as long as it did here if that is more. Nothing of this was
measured on a device, so intervals are wide. For BERT-Large in fp32 (inference, and forward with backward) it was off by
10% on average and 27% at most, on ten devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING, Final

from lostflops.account.facts.devices import DEVICES, Device
from lostflops.account.ledger.bound import WORDS, Bound
from lostflops.account.ledger.work import MATMUL_CLASSES
from lostflops.core.errors import NotApplicable, UnknownCost
from lostflops.core.units import format_share, pluralise
from lostflops.predict.costs.kernels.model import kernel_times
from lostflops.predict.elsewhere.forecast import INSTEAD, Forecast, Forecasts, Refused, count_ranks
from lostflops.predict.elsewhere.op_steps import StepOps, median_step, read_step_ops
from lostflops.predict.estimate.rates import LAUNCH_NS
from lostflops.predict.graph.lines import mean_lines
from lostflops.predict.whatif.interval import BETWEEN_RUNS
from lostflops.predict.whatif.whatif import baseline_pairs, notes_of_run

if TYPE_CHECKING:
    from lostflops.predict.whatif.baseline import Baseline
    from lostflops.store.run import Run

Progress = Callable[[int, int], None]

_MODELLED: Final = {"fp32": 0.25}
"""Part by which the kernel model may be wrong on one device, in the dtype that it was fitted to."""
_OTHER_DTYPES: Final = 0.5
_WORK: Final = 0.2
"""Part by which the work of a device may differ from that of the recorded ops: libraries fuse, copy and cast in other
ways."""
_HOST: Final = 2.0
"""Factor by which the time of the host may differ either way."""
_MOST_UNKNOWN: Final = 0.1
"""Share of the time of ops, of those that are not known to the formulas, above which nothing can be predicted."""


@dataclass(frozen=True, slots=True)
class _DeviceTime:
    """Time of a step on a device, in ns."""

    multiplying: float
    moving: float
    doubt: float
    """Half the width of the range from the kernel model."""

    @property
    def whole(self) -> float:
        return self.multiplying + self.moving


def forecast_computed(run: Run, start: Baseline, progress: Progress | None = None) -> Forecasts:
    """Predict the run on every known device. Raise `NotApplicable` if the ops do not show what a device would do."""
    steps = _read_steps(run, start)
    lines = mean_lines(start.schedule)
    python = (lines["idle.python"] + lines["idle.host"]) * start.level
    host = max(max(one.launches for one in steps) * LAUNCH_NS, python)
    loading = lines["idle.data"] * start.level
    made, refused = list[Forecast](), list[Refused]()
    for done, device in enumerate(DEVICES):
        if progress is not None:
            progress(done, len(DEVICES))
        try:
            slowest = max((_time(device, one) for one in steps), key=lambda one: one.whole)
            made.append(_forecast(device, slowest, host, loading))
        except (NotApplicable, UnknownCost) as error:
            refused.append(Refused(device=device.name, reason=str(error)))
    memory = start.facts.memory
    return Forecasts(
        measured=start.measured,
        now="the CPUs of this run",
        ranks=1,
        made=tuple(made),
        refused=tuple(refused),
        peak=None if memory is None else memory.peak_bytes,
        memory_note="the peak that was recorded on CPUs, which need other buffers",
        baseline=baseline_pairs(start),
        notes=(*_notes(steps), *notes_of_run(start)),
    )


def _read_steps(run: Run, start: Baseline) -> list[StepOps]:
    if count_ranks(run) > 1:
        raise NotApplicable(
            "this job has several ranks without an accelerator, and how devices would join them is not known: "
            f"record one rank, or {INSTEAD}"
        )
    steps = [read_step_ops(run, rank, median_step(start.graph.steps)) for rank in start.graph.ranks]
    if not any(one.kernels for one in steps):
        raise NotApplicable(
            "no shapes of ops were recorded, and this run has no accelerator: record it with `lostflops run -- ...`, "
            f"which records shapes unless --with leaves them out, or {INSTEAD}"
        )
    unknown = max(one.unknown_share for one in steps)
    if unknown > _MOST_UNKNOWN:
        raise NotApplicable(
            f"ops that take {format_share(unknown)} of the time have no shapes or no formula (custom or compiled ops), "
            f"so it is not known what a device would do: record it without torch.compile, or {INSTEAD}"
        )
    return steps


def _time(device: Device, ops: StepOps) -> _DeviceTime:
    works = list(ops.kernels)
    times = kernel_times(device, works).tolist()
    spent: Counter[bool] = Counter()
    off = 0.0
    for work, ns in zip(works, times, strict=True):
        whole = ns * ops.kernels[work]
        spent[work.kind in MATMUL_CLASSES] += whole
        off += whole * _doubt(work.dtype)
    return _DeviceTime(spent[True], spent[False], off)


def _doubt(dtype: str) -> float:
    return _MODELLED.get(dtype, _OTHER_DTYPES)


def _forecast(device: Device, on_device: _DeviceTime, host: float, loading: float) -> Forecast:
    step = max(on_device.whole, host + loading)
    both = hypot(on_device.doubt, _WORK * on_device.whole)
    low = max(on_device.whole - both, host / _HOST + loading)
    high = max(on_device.whole + both, host * _HOST + loading)
    ends = [max(on_device.whole + way * on_device.doubt, host + loading) for way in (-1, 1)]
    own = hypot(max(abs(end - step) for end in ends), BETWEEN_RUNS * step)
    return Forecast(
        device=device,
        step=step,
        low=min(low, step) * (1 - BETWEEN_RUNS),
        high=max(high, step) * (1 + BETWEEN_RUNS),
        own=own,
        bound=_bound(on_device, step, loading),
        floor=host + loading,
    )


def _bound(on_device: _DeviceTime, step: float, loading: float) -> Bound:
    """Return what bounds a step. While the device is idle, the host loads a batch or launches."""
    idle = step - on_device.whole
    waited = min(idle, loading)
    spent = {
        "compute": on_device.multiplying,
        "memory": on_device.moving,
        "communication": 0.0,
        "input": waited,
        "host": idle - waited,
    }
    return Bound({word: spent[word] / step for word in WORDS})


def _notes(steps: Sequence[StepOps]) -> Iterator[str]:
    most = max(steps, key=lambda one: one.launches)
    dtypes = sorted({work.dtype for work in most.kernels if work.kind in MATMUL_CLASSES})
    precision = " and ".join(dtypes) or "the recorded dtype"
    yield (
        f"This run used no accelerator: the {pluralise(most.launches, 'kernel')} of a step on a device are derived "
        f"from the shapes of its ops (step {most.step}), and their times from a kernel model. Measure one step on a "
        "device to check."
    )
    yield (
        f"Assumed: matmuls stay in {precision}, the optimizer updates lists of tensors (foreach), loading a batch "
        "takes the same time as here, and copies to the device are hidden. The host takes "
        f"{LAUNCH_NS / 1000:g} us for each launch, or as long as Python between ops took here if that is longer."
    )
