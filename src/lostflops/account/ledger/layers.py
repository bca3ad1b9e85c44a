"""The communication of each FSDP unit and of each layer, beside the compute that could hide it.

PyTorch annotates the gathers and reductions of FSDP units with the unit's name. Other communication has the layer of
the module that launched it. Every instant of communication belongs to one call, the first that started, so that exposed
times sum to the lines of the ledger.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lostflops.account.ledger.by_rank import Question
from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.issuing_ops import find_issuing_ops
from lostflops.account.ledger.modules import layer_of, stretches
from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.partition import Partition, partition
from lostflops.account.ledger.parts import communication_shares
from lostflops.account.ledger.phases import BACKWARD, FORWARD, PHASES, phases_at, thread_phases
from lostflops.account.ledger.record import KERNEL, UNKNOWN_OP, Codes, Ns, Record
from lostflops.account.ledger.shares import by_event
from lostflops.account.ledger.windows import LedgerWindow
from lostflops.store.row_groups import group_rows

_LABEL: Final = re.compile(
    r"FSDP::(all_gather|post_backward_reduce|pre_forward|pre_backward)(?: \((.*?)\))?(?: \[pg=\d+\])?$"
)
_GATHER, _REDUCE = "all_gather", "post_backward_reduce"
_FORWARD_USE, _BACKWARD_USE = "pre_forward", "pre_backward"
ROOT: Final = "(root)"


class LayerCalls(NamedTuple):
    """One operation of a unit or layer in one pass, on one rank; times in ns."""

    layer: str
    """Name of the unit or layer; empty if it is unknown."""
    phase: str
    op: str
    is_unit: bool
    """Whether it gathers or reduces the parameters of an FSDP unit."""
    calls: int
    hidden: int
    exposed: int
    waited: int
    """Part of `exposed` in which a rank was missing."""
    moving: int
    """Time of the calls after the last rank had arrived, hidden or not."""
    beside: int
    """Compute that could hide the calls of a unit: that of the unit before a gather, or after a reduction."""


class LayerCompute(NamedTuple):
    layer: str
    phase: str
    ns: int


@dataclass(frozen=True, slots=True)
class RankLayers:
    """The communication and compute of one rank by unit and layer."""

    rank: int
    exposed: int
    """Exposed communication of the rank's ledger, in ns; that of `calls` sums to it."""
    calls: tuple[LayerCalls, ...]
    compute: tuple[LayerCompute, ...]


class _Places(NamedTuple):
    """What asked for each call."""

    at: Ns
    """When; only where `lane` is known."""
    lane: Codes
    """Thread; -1 if unknown."""
    module: tuple[str, ...]


class _Use(NamedTuple):
    """A unit is about to be used."""

    start: int
    stop: int
    unit: str
    phase: str


def layers(record: Record, chosen: LedgerWindow) -> RankLayers:
    made = partition(record, chosen)
    calls = record.communication
    exposed = dict(communication_shares(record, made.lines))
    hidden = by_event(calls.start, calls.stop, made.comm & made.compute)
    moving = made.window.inside.within(calls.ready, calls.stop)
    places = _places(record)
    keys, beside = _name_calls(record, made, places)
    ran = made.window.inside.within(calls.start, calls.stop) > 0
    waited = exposed["comm.wait"] + exposed["comm.bubble"]
    columns = np.stack((ran, hidden, exposed["comm.transfer"] + waited, waited, moving, np.where(ran, beside, 0)))
    sums: dict[tuple[str, str, str, bool], Ns] = defaultdict(lambda: np.zeros(columns.shape[0], np.int64))
    for row in np.flatnonzero(ran).tolist():
        sums[keys[row]] += columns[:, row]
    found = RankLayers(
        rank=record.rank,
        exposed=sum(int(share.sum()) for share in exposed.values()),
        calls=tuple(LayerCalls(*key, *row.tolist()) for key, row in sums.items()),
        compute=tuple(LayerCompute(*key, ns) for key, ns in _layer_compute(record, made).items() if ns),
    )
    lines = made.ns()
    assert found.exposed == lines["comm.transfer"] + lines["comm.wait"] + lines["comm.bubble"]
    assert found.exposed == sum(call.exposed for call in found.calls)
    return found


def _places(record: Record) -> _Places:
    """Return the place of what asked for each call: the launch of a kernel, or an op on a CPU rank."""
    calls, host = record.communication, record.host
    if record.on_device:
        asked, codes = record.device.launch[calls.row], record.device.module[calls.row]
        names = [record.modules[code] if code >= 0 else "" for code in codes.tolist()]
    else:
        asked = np.full(calls.start.size, -1, np.int64)
        order = np.lexsort((calls.event, calls.start))
        ops = np.array([record.collectives.ops[code] if code >= 0 else "" for code in calls.op[order].tolist()], object)
        asked[order] = find_issuing_ops(record, calls.start[order], ops)
        names = _modules_around(record, asked)
    known = asked >= 0
    if not host.start.size:
        return _Places(np.zeros(known.size, np.int64), np.full(known.size, -1, np.int64), tuple(names))
    return _Places(host.start[asked], np.where(known, host.lane[asked], -1), tuple(names))


def _modules_around(record: Record, rows: Codes) -> list[str]:
    """Return the module around each host row of the training thread; empty for none."""
    own = np.flatnonzero(record.placed.lane == record.training_lane)
    known = np.flatnonzero(rows >= 0)
    found = [""] * rows.size
    inner = Nest(record.placed.start[own], record.placed.stop[own]).innermost(record.host.start[rows[known]])
    for row, at in zip(known.tolist(), inner.tolist(), strict=True):
        found[row] = record.modules[record.placed.module[own[at]]] if at >= 0 else ""
    return found


def _name_calls(record: Record, made: Partition, places: _Places) -> tuple[list[tuple[str, str, str, bool]], Ns]:
    """Return layer, pass, operation and whether it is a unit for each call, and the compute beside it."""
    calls, beside = record.communication, np.zeros(places.at.size, np.int64)
    phases = phases_at(record, places.at, places.lane)
    labels, uses = _labels(record, places)
    spans = list(_spans_beside(record, places, labels, uses))
    compute = _launched_compute(record, made, np.array([(span[1], span[2]) for span in spans], np.int64).reshape(-1, 2))
    keys = []
    for row in range(places.at.size):
        label, unit = labels[row]
        op = record.collectives.ops[calls.op[row]] if calls.op[row] >= 0 else UNKNOWN_OP
        phase = PHASES[phases[row]] if places.lane[row] >= 0 else ""
        keys.append(
            (unit, PHASES[BACKWARD] if label == _REDUCE else phase, op, True)
            if label
            else (layer_of(places.module[row]), phase, op, False)
        )
    for (row, _, _, phase), ns in zip(spans, compute.tolist(), strict=True):
        beside[row] = ns
        keys[row] = (keys[row][0], phase, *keys[row][2:])
    return keys, beside


def _labels(record: Record, places: _Places) -> tuple[list[tuple[str, str]], list[_Use]]:
    """Return the label and unit of FSDP around each call, empty for none, and the uses of units in order of time."""
    host, found, uses = record.host, [("", "")] * places.at.size, list[_Use]()
    matches = {code: match for code, name in enumerate(record.names) if (match := _LABEL.match(name))}
    rows = host.having(Trait.ANNOTATION)
    rows = rows[np.isin(host.name[rows], list(matches))]
    for lane, own in group_rows(host.lane[rows]):
        held = rows[own]
        marks = [(matches[code][1], matches[code][2] or ROOT) for code in host.name[held].tolist()]
        uses += _uses(record, held, marks)
        asking = np.flatnonzero(places.lane == lane)
        inner = Nest(host.start[held], host.stop[held]).innermost(places.at[asking])
        for row, at in zip(asking.tolist(), inner.tolist(), strict=True):
            if at >= 0 and marks[at][0] in (_GATHER, _REDUCE):
                found[row] = marks[at]
    return found, sorted(uses)


def _uses(record: Record, rows: Codes, marks: list[tuple[str, str]]) -> Iterator[_Use]:
    """Yield the uses among annotations of one thread; a forward pass that is repeated in the backward pass is of it."""
    start, stop = record.host.start[rows], record.host.stop[rows]
    phases = phases_at(record, start, record.host.lane[rows])
    for begin, end, phase, (what, unit) in zip(start.tolist(), stop.tolist(), phases.tolist(), marks, strict=True):
        if what in (_FORWARD_USE, _BACKWARD_USE):
            is_backward = what == _BACKWARD_USE or phase == BACKWARD
            yield _Use(begin, end, unit, PHASES[BACKWARD if is_backward else FORWARD])


def _spans_beside(
    record: Record, places: _Places, labels: list[tuple[str, str]], uses: list[_Use]
) -> Iterator[tuple[int, int, int, str]]:
    """Yield each call of a unit with the stretch of the host in which the compute beside it was launched, and its pass.

    For a gather this is from the use of the unit before it to its own use, for a reduction until that of the next unit.
    """
    yield from _spans_after(record, places, labels)
    number = np.searchsorted(record.steps.start, [use.start for use in uses], "right").tolist()
    of_unit = defaultdict(list)
    for place, use in enumerate(uses):
        of_unit[use.unit].append(place)
    stops = {unit: [uses[place].stop for place in own] for unit, own in of_unit.items()}
    for row, (label, unit) in enumerate(labels):
        at = bisect_right(stops.get(unit, []), places.at[row])
        if label != _GATHER or at == len(of_unit[unit]):
            continue
        place = of_unit[unit][at]
        use, before = uses[place], place - 1
        same = before >= 0 and uses[before].phase == use.phase and number[before] == number[place]
        yield row, uses[before].start if same else use.start, use.start, use.phase


def _spans_after(record: Record, places: _Places, labels: list[tuple[str, str]]) -> Iterator[tuple[int, int, int, str]]:
    """Yield each reduction with its time and that of the next unit's in the same step; with its own if it is last."""
    reductions = sorted((int(places.at[row]), row) for row, (label, _) in enumerate(labels) if label == _REDUCE)
    numbers = np.searchsorted(record.steps.start, [at for at, _ in reductions], "right").tolist()
    until, unit, step = 0, "", -1
    spans = []
    for (at, row), number in zip(reversed(reductions), reversed(numbers), strict=True):
        own = labels[row][1]
        if number != step:
            until, following = at, at
        elif own != unit:
            until = following
        spans.append((row, at, max(until, at), PHASES[BACKWARD]))
        unit, step, following = own, number, at
    yield from reversed(spans)


def _launched_compute(record: Record, made: Partition, spans: npt.NDArray[np.int64]) -> Ns:
    """Return the compute that the host launched in each stretch of its time, or that ran in it on a CPU rank."""
    if not record.on_device:
        return made.compute.within(spans[:, 0], spans[:, 1])
    device = record.device
    rows = np.flatnonzero((device.kind == KERNEL) & (device.launch >= 0))
    launched = record.host.start[device.launch[rows]]
    order = np.argsort(launched, kind="stable")
    shares = by_event(device.start[rows], device.stop[rows], made.compute)[order]
    until = np.concatenate(([0], np.cumsum(shares)))
    edges = np.searchsorted(launched[order], spans)
    found: Ns = until[edges[:, 1]] - until[edges[:, 0]]
    return found


def _layer_compute(record: Record, made: Partition) -> Counter[tuple[str, str]]:
    """Return compute by layer and pass."""
    sums: Counter[tuple[str, str]] = Counter()
    if not any(record.modules):
        return sums
    if not record.on_device:
        return _compute_on_thread(record, made)
    device, host = record.device, record.host
    rows = np.flatnonzero((device.kind == KERNEL) & (device.launch >= 0))
    shares = by_event(device.start[rows], device.stop[rows], made.compute)
    phases = phases_at(record, host.start[device.launch[rows]], host.lane[device.launch[rows]])
    pairs, which = np.unique(np.stack((device.module[rows], phases)), axis=1, return_inverse=True)
    totals = np.zeros(pairs.shape[1], np.int64)
    np.add.at(totals, which.ravel(), shares)
    for (module, phase), ns in zip(pairs.T.tolist(), totals.tolist(), strict=True):
        sums[layer_of(record.modules[module]), PHASES[phase]] += ns
    return sums


def _compute_on_thread(record: Record, made: Partition) -> Counter[tuple[str, str]]:
    sums: Counter[tuple[str, str]] = Counter()
    edges, codes = stretches(record)
    until, phases = thread_phases(record)
    cuts = np.unique(np.concatenate((edges, until)))
    begin, end = cuts[:-1], cuts[1:]
    module = codes[np.searchsorted(edges, begin, "right") - 1]
    phase = np.searchsorted(until, begin, "right")
    names, passes = (*record.modules, ""), (*phases, PHASES[-1])
    for code, place, ns in zip(module.tolist(), phase.tolist(), made.compute.within(begin, end).tolist(), strict=True):
        sums[layer_of(names[code]), passes[place]] += ns
    return sums


LAYERS: Final = Question("layers", RankLayers, layers)
QUESTIONS: Final = {LAYERS.name: LAYERS}
