"""A run that was recorded on an accelerator, on all others: one baseline, and the change `device` for each of them.

The error of a prediction that other devices do not have is that of its kernels and links, and how far two runs of one
job differ. The replay and the recorded steps are the same for all, and the host is assumed to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import hypot
from typing import TYPE_CHECKING

import numpy as np

from lostflops.account.facts.devices import DEVICES, Device, find_device
from lostflops.account.facts.kernel_classes import CLASSES
from lostflops.account.ledger.bound import Bound
from lostflops.account.ledger.total import RankLines, RunLedger
from lostflops.core.errors import NotApplicable, UnknownCost
from lostflops.predict.costs.kernels.rescale import half_width
from lostflops.predict.elsewhere.forecast import INSTEAD, Forecast, Forecasts, Refused, count_ranks
from lostflops.predict.graph.editing import retime_graph
from lostflops.predict.graph.lines import mean_lines
from lostflops.predict.graph.longest import expect_replays
from lostflops.predict.graph.replay import replay
from lostflops.predict.graph.tasks import TaskKind
from lostflops.predict.whatif.answer import WhatIfAnswer, answer
from lostflops.predict.whatif.changes.device import links_doubt
from lostflops.predict.whatif.run_facts import device_names
from lostflops.predict.whatif.whatif import baseline_pairs, notes_of_run

if TYPE_CHECKING:
    from lostflops.predict.graph.replay import Schedule
    from lostflops.predict.whatif.baseline import Baseline
    from lostflops.store.run import Run

Progress = Callable[[int, int], None]


def forecast_recorded(run: Run, start: Baseline, progress: Progress | None = None) -> Forecasts:
    """Predict the run on every known device. Raise `NotApplicable` if none can be compared with that of the run."""
    now = find_device(start.facts.device) if start.facts.device else None
    if now is None and len(names := device_names(run)) > 1:
        known = " and ".join(names)
        raise NotApplicable(
            f"ranks have different devices ({known}), so others cannot be compared with them: {INSTEAD}"
        )
    if now is None:
        name = start.facts.device or "the device of this run"
        raise NotApplicable(f"{name} is not a known device, so others cannot be compared with it: {INSTEAD}")
    expect_replays(len(start.graph.tasks) * len(DEVICES))
    floor = _floor(start)
    made, refused = [_forecast_now(start, now, floor)], list[Refused]()
    for done, device in enumerate(DEVICES):
        if progress is not None:
            progress(done, len(DEVICES))
        if device == now:
            continue
        try:
            made.append(_forecast(answer(start, [("device", device.name)]), now, device, floor))
        except (NotApplicable, UnknownCost) as error:
            refused.append(Refused(device=device.name, reason=str(error.__cause__ or error)))
    peak, memory_note = _peak(run, start)
    return Forecasts(
        measured=start.measured,
        now=f"the {now.name} of this run",
        ranks=count_ranks(run),
        made=tuple(made),
        refused=tuple(refused),
        peak=peak,
        memory_note=memory_note,
        baseline=baseline_pairs(start),
        notes=tuple(notes_of_run(start)),
        is_guess=start.is_uncertain,
    )


def _floor(start: Baseline) -> float:
    """Return the step if kernels took no time: the pace of the host, the input and the transfers."""
    tasks = start.graph.tasks
    on_device = np.isin(tasks.kind, (TaskKind.KERNEL, TaskKind.COPY))
    done = replay(retime_graph(start.graph, duration=np.where(on_device, 0, tasks.duration)))
    return start.measured * done.mean_step / start.replayed


def _forecast(found: WhatIfAnswer, now: Device, device: Device, floor: float) -> Forecast:
    (one,) = found.applied
    lines = mean_lines(found.schedule)
    kernels = half_width(now, device) * (lines["compute"] + lines["copy"])
    links = links_doubt(now, device) * lines["comm.transfer"]
    return Forecast(
        device=device,
        step=found.predicted,
        low=found.low,
        high=found.high,
        own=hypot(found.baseline.level * hypot(kernels, links), found.doubts.runs),
        bound=_bound(found.schedule, lines),
        floor=floor,
        notes=one.edited.notes,
    )


def _forecast_now(start: Baseline, device: Device, floor: float) -> Forecast:
    """Return the run as it is, with the error of another run of the same job."""
    unchanged = answer(start, [])
    return Forecast(
        device=device,
        step=unchanged.predicted,
        low=unchanged.low,
        high=unchanged.high,
        own=unchanged.doubts.runs,
        bound=_bound(start.schedule, mean_lines(start.schedule)),
        floor=floor,
        is_now=True,
    )


def _bound(done: Schedule, mean: Mapping[str, float]) -> Bound:
    """Return what bounds a schedule with these mean lines. Waits in collectives count as communication: a schedule has
    no late ranks."""
    lines = Counter({name: round(ns) for name, ns in mean.items()})
    tasks = done.graph.tasks
    kernels = (tasks.kind == TaskKind.KERNEL) & (tasks.step >= 0)
    spent = np.bincount(tasks.kernel_class[kernels], tasks.duration[kernels], len(CLASSES))
    share = lines["compute"] / spent.sum() if spent.sum() else 0.0
    classes = Counter({name: round(ns * share) for name, ns in zip(CLASSES, spent.tolist(), strict=True)})
    step = RankLines(0, sum(lines.values()), lines, 1)
    return Bound.of(RunLedger(ranks=[step], lines=lines, parts={"compute": classes}))


def _peak(run: Run, start: Baseline) -> tuple[int | None, str]:
    """Return the peak of the device memory in bytes, and how it is known."""
    memory = start.facts.memory
    if memory is not None and memory.device != "cpu":
        return memory.peak_bytes, f"the recorded peak of rank {memory.rank}"
    timed = run.rows("select max(peak_memory) from timings")[0][0]
    if timed:
        return int(timed), "the highest peak that the allocator reported"
    return None, ""


def distinct_notes(made: tuple[Forecast, ...], best: Forecast) -> Iterator[str]:
    """Yield notes that all predictions share, then those of the best one alone."""
    predicted = [one for one in made if not one.is_now]
    shared = [note for note in predicted[0].notes if all(note in one.notes for one in predicted)] if predicted else []
    yield from shared
    yield from (f"{best.device.name}: {note}" for note in best.notes if note not in shared)
