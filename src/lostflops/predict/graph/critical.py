"""Which ranks and which tasks does the step time depend on?

A run becomes a graph of tasks and is replayed. The path of a step goes from its end, on the rank that ends it last,
back to its start, each time to what let a task start. Tasks that are not on the path could take longer without a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lostflops.account.facts.kernel_names import short
from lostflops.account.ledger.lines import HOST_LINES, LINES
from lostflops.core.errors import UsageError
from lostflops.core.results import Field, Line, Lines, Pair, Pairs, Result, Table
from lostflops.core.units import format_share, pluralise
from lostflops.predict.graph.build import build
from lostflops.predict.graph.held import PathPieces, split_paths, stretches
from lostflops.predict.graph.path import Led, Path, critical_paths, step_end
from lostflops.predict.graph.replay import Schedule, replay
from lostflops.predict.graph.tasks import LaneKind

if TYPE_CHECKING:
    from lostflops.account.ledger.by_rank import Progress
    from lostflops.store.run import Run

TOP: Final = 10
_LARGE_ERROR: Final = 0.05
"""If the relative error of the replay is larger, the real critical path may be another one."""
_AS_LATE: Final = 0.01
"""Part of a step: ranks that end it within this much of each other could change places in another run."""
_MOST_RANKS: Final = 8
_OF_HOST: Final = {
    line: "host.dispatch" if line == "idle.host" else line.replace("idle.", "host.") for line in HOST_LINES
}
"""Names of the host's ledger lines on the path of a job with devices."""


@dataclass(frozen=True, slots=True)
class _StepPaths:
    """Critical paths of several steps, one for each of `steps`."""

    done: Schedule
    steps: tuple[int, ...]
    paths: tuple[Path, ...]
    held: PathPieces

    @property
    def total(self) -> int:
        return int(self.held.ns.sum())

    def name(self, line: str) -> str:
        """Return the name of a line on the path. The host that a device waits for may be busy while the device is busy
        too, so its time is not idle time of the ledger and is not named so."""
        has_device = bool((self.done.graph.lanes.kind == LaneKind.STREAM).any())
        return _OF_HOST.get(line, line) if has_device else line

    @property
    def error(self) -> float | None:
        measured = float(self.done.graph.steps.measured.mean())
        return self.done.mean_step / measured - 1 if measured else None


def critical(run: Run, *, step: int | None = None, top: int = TOP, progress: Progress | None = None) -> Result:
    """Find the critical path over all recorded steps, or of one step."""
    return critical_of(replay(build(run, progress)), step=step, top=top)


def critical_of(done: Schedule, *, step: int | None = None, top: int = TOP) -> Result:
    rows = _last_rows(done, step)
    if not rows:
        raise UsageError("no step has recorded events, so there is no path through one")
    paths = critical_paths(done, [step_end(done, row) for row in rows])
    numbers = tuple(done.graph.steps.number[rows].tolist())
    found = _StepPaths(done, numbers, tuple(paths), split_paths(done.graph, paths))
    if not found.total:
        raise UsageError("no step took any time")
    return Result(
        name="path",
        title="Critical path",
        verdict=_verdict(found),
        blocks=(_figures(found), _lines(found), _ranks(found), _tasks(found, top), _stretches(found, top)),
        notes=tuple(_notes(found)),
    )


def _last_rows(done: Schedule, step: int | None) -> list[int]:
    """Return for each step the row of the rank that ends it last, or the first such row; raise `UsageError` if `step`
    was not recorded."""
    steps, stop = done.graph.steps, done.step_edges[1]
    numbers = np.unique(steps.number).tolist()
    if step is not None and step not in numbers:
        known = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
        raise UsageError(f"step {step} was not recorded; recorded steps: {known}")
    chosen = numbers if step is None else [step]
    own = [np.flatnonzero(steps.number == number) for number in chosen]
    return [int(rows[stop[rows].argmax()]) for rows in own]


def _by_rank(found: _StepPaths) -> list[tuple[int, int, int, int]]:
    """Return rank, ns outside collectives, ns in collectives, and how often others waited for the rank; most ns outside
    collectives first."""
    pieces = found.held
    waited = _waited_for(found)
    rows = []
    for rank in found.done.graph.ranks:
        own = pieces.rank == rank
        alone = int(pieces.ns[own & ~pieces.met].sum())
        rows.append((rank, alone, int(pieces.ns[own & pieces.met].sum()), waited.get(rank, 0)))
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def _waited_for(found: _StepPaths) -> dict[int, int]:
    """Count by rank how often the path turned to a rank because it arrived last."""
    ranks = found.done.graph.rank
    turned = np.concatenate([ranks[path.task[:-1]][path.led[1:] == Led.MEETING] for path in found.paths])
    return dict(zip(*(column.tolist() for column in np.unique(turned, return_counts=True)), strict=True))


def _changes(found: _StepPaths) -> int:
    ranks = found.done.graph.rank
    return sum(int((np.diff(ranks[path.task]) != 0).sum()) for path in found.paths)


def _by_line(found: _StepPaths) -> list[tuple[str, int]]:
    sums = np.zeros(len(LINES), np.int64)
    np.add.at(sums, found.held.line, found.held.ns)
    return [(found.name(line), ns) for line, ns in zip(LINES, sums.tolist(), strict=True)]


def _verdict(found: _StepPaths) -> str:
    lines = sorted(_by_line(found), key=lambda one: -one[1])
    most = " and ".join(f"{format_share(ns / found.total)} {line}" for line, ns in lines[:2] if ns)
    rank, alone, _, waited = _by_rank(found)[0]
    said = f"The critical path is {most}"
    if len(found.done.graph.ranks) == 1:
        return f"{said}."
    late = f", and other ranks wait for it {pluralise(waited, 'time')}" if waited else ""
    return f"{said}; rank {rank} accounts for {format_share(alone / found.total)} of it outside collectives{late}."


def _figures(found: _StepPaths) -> Pairs:
    count = len(found.steps)
    items = (
        Pair("steps", count, "count"),
        Pair("step_ns", round(found.total / count), "ns", "step time on the rank that finishes last"),
        Pair("rank_changes", _changes(found) / count, "rate", "rank changes per step"),
        Pair(
            "tasks", round(sum(path.task.size for path in found.paths) / count), "count", "tasks on the path per step"
        ),
        Pair("of_tasks", len(found.done.graph.tasks), "count", "tasks in total"),
        Pair("replay_error", found.error, "share", "replay error"),
    )
    return Pairs("path", "The path", items)


def _lines(found: _StepPaths) -> Lines:
    items = tuple(Line(line, ns, ns / found.total) for line, ns in _by_line(found) if ns)
    return Lines("lines", "Critical path by ledger line", items, found.total, len(found.steps), "step")


def _ranks(found: _StepPaths) -> Table:
    count = len(found.steps)
    fields = (
        Field("rank"),
        Field("own_ns", "ns", "outside collectives"),
        Field("own_share", "share", "share"),
        Field("collective_ns", "ns", "in collectives"),
        Field("last_arrivals", "count", "last arrivals"),
    )
    ranks = _by_rank(found)
    rows = tuple(
        (rank, round(own / count), own / found.total, round(met / count), waited) for rank, own, met, waited in ranks
    )
    holding = sum(own + met > 0 for _, own, met, _ in ranks)
    return Table("ranks", "By rank, per step", fields, rows, most_shown=max(1, min(holding, _MOST_RANKS)))


def _tasks(found: _StepPaths, top: int) -> Table:
    pieces, count = found.held, len(found.steps)
    ns = np.bincount(pieces.what, weights=pieces.ns, minlength=len(pieces.names))
    times = np.bincount(pieces.what[pieces.ns > 0], minlength=len(pieces.names))
    order = sorted(np.flatnonzero(ns).tolist(), key=lambda what: (-ns[what], str(pieces.names[what])))
    fields = (
        Field("kind"),
        Field("short", label="name"),
        Field("name", shown=False),
        Field("ns", "ns", "per step"),
        Field("share", "share"),
        Field("count", "rate", "times per step"),
    )
    rows = tuple(
        (
            *_make_name_cells(*pieces.names[what]),
            round(ns[what] / count),
            float(ns[what] / found.total),
            float(times[what] / count),
        )
        for what in order[:top]
    )
    return Table("tasks", "By task", fields, rows, left_out=len(order) - len(rows))


def _stretches(found: _StepPaths, top: int) -> Table:
    """List the longest stretches of the step of median length: means over all steps would match no real stretch."""
    lengths = [path.length for path in found.paths]
    shown = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
    longest, every = stretches(found.held.take(found.held.path == shown), top)
    begin = int(found.paths[shown].start[0])
    fields = (
        Field("start_ns", "ns", "starts at"),
        Field("ns", "ns", "duration"),
        Field("share", "share"),
        Field("rank"),
        Field("line"),
        Field("kind", shown=False),
        Field("short", label="mostly"),
        Field("name", shown=False),
        Field("tasks", "count"),
        Field("led", shown=False),
    )
    rows = tuple(
        (
            one.start - begin,
            one.ns,
            one.ns / lengths[shown],
            one.rank,
            found.name(one.line),
            *_make_name_cells(*one.what),
            one.tasks,
            _format_led(one.led),
        )
        for one in longest
    )
    title = f"Longest stretches of step {found.steps[shown]}, in time order"
    return Table("stretches", title, fields, rows, left_out=every - len(rows))


def _make_name_cells(kind: str, name: str) -> tuple[str, str, str]:
    return kind, short(name), name


def _format_led(led: Led) -> str:
    return led.name.lower()


def _notes(found: _StepPaths) -> Iterator[str]:
    if (error := abs(found.error or 0)) > _LARGE_ERROR:
        yield (
            f"The replay is off by {format_share(error)}: the graph misses something that delayed the "
            "run, so the real critical path may differ."
        )
    if not np.isin(found.done.graph.steps.number, found.steps).all():
        yield f"Only step {_format_steps(found.steps)} is shown."
    if equal := _equally_late(found):
        yield (
            f"In {equal} of {pluralise(len(found.steps), 'step')}, "
            f"other ranks finish within {format_share(_AS_LATE)} of "
            "the named rank and the path contains no collective: they delay the step just as much."
        )
    yield "Work off the path has slack: speeding it up gains nothing until the path itself is shorter."
    yield from found.done.graph.notes


def _equally_late(found: _StepPaths) -> int:
    """Count steps whose path contains no collective and could as well have been the path of another rank."""
    steps, stop = found.done.graph.steps, found.done.step_edges[1]
    equal = 0
    for number, (step, path) in enumerate(zip(found.steps, found.paths, strict=True)):
        ends = stop[steps.number == step]
        late = ends >= ends.max() - _AS_LATE * path.length
        equal += int(late.sum() > 1 and not found.held.met[found.held.path == number].any())
    return equal


def _format_steps(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))
