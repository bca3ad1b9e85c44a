"""The parts of each line of a rank's ledger. The parts of a line sum to it, as integers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from lostflops.account.facts.kernel_classes import CLASSES, kernel_class, op_class
from lostflops.account.ledger.gaps import Gaps
from lostflops.account.ledger.host_traits import Trait
from lostflops.account.ledger.nesting import Nest
from lostflops.account.ledger.partition import Partition
from lostflops.account.ledger.phases import annotations_on, by_stretch
from lostflops.account.ledger.record import KERNEL, MEMCPY, MEMSET, Codes, Flags, Ns, Record
from lostflops.account.ledger.shares import by_event, by_priority
from lostflops.store.intervals import Intervals
from lostflops.store.row_groups import group_rows

Parts = dict[str, dict[str, int]]

NO_ANNOTATION: Final = "no annotation"
_IN_OPTIMIZER: Final = -2
_DIRECTION: Final = re.compile(r"Mem(?:cpy|set)\s+(HtoD|DtoH|DtoD|PtoP|HtoH)")


def parts(record: Record, partition: Partition, classes: Codes) -> Parts:
    """Return time by line and name of the part; `classes` are those of the device's kernels."""
    found = _on_device(record, partition, classes) if record.on_device else _on_thread(record, partition)
    return {line: {name: ns for name, ns in sums.most_common() if ns} for line, sums in found.items()}


def _on_device(record: Record, partition: Partition, classes: Codes) -> dict[str, Counter[str]]:
    device, lines = record.device, partition.lines
    assert partition.gaps is not None
    gaps = partition.gaps
    copies = np.flatnonzero((device.kind == MEMCPY) | (device.kind == MEMSET))
    return {
        "compute": _classes(record, partition, classes),
        **_communication(record, partition),
        "copy": _sums(
            device.name[copies],
            by_event(device.start[copies], device.stop[copies], lines["copy"]),
            lambda code: direction(record.names[code]),
        ),
        "idle.sync": _blockers(record, partition, gaps),
        "idle.alloc": _allocations(record, partition, gaps),
        "idle.host": _host(record, lines["idle.host"], gaps.calls),
        "idle.python": python_by_annotation(record, partition),
    }


def _on_thread(record: Record, partition: Partition) -> dict[str, Counter[str]]:
    host = record.host
    rows = host.computing(record.training_lane)
    return {
        "compute": _sums(
            host.name[rows],
            by_event(host.start[rows], host.stop[rows], partition.lines["compute"]),
            lambda code: op_class(record.names[code]),
        ),
        **_communication(record, partition),
        "idle.host": Counter({"op dispatch": partition.lines["idle.host"].total}),
        "idle.python": python_by_annotation(record, partition),
    }


def _communication(record: Record, partition: Partition) -> dict[str, Counter[str]]:
    """Sum transfers by group, and waits by the rank that was late."""
    calls, found = record.communication, {}
    for line, shares in communication_shares(record, partition.lines):
        if line == "comm.transfer":
            found[line] = _sums(calls.group, shares, record.collectives.name)
        else:
            found[line] = _sums(calls.late, shares, lambda late: f"for rank {late}")
    return found


def communication_shares(record: Record, lines: dict[str, Intervals]) -> Iterator[tuple[str, Ns]]:
    """Yield each line of communication, and the time that every call has on it."""
    calls = record.communication
    yield "comm.transfer", by_event(calls.ready, calls.stop, lines["comm.transfer"])
    for line, own in (("comm.wait", ~calls.transfer), ("comm.bubble", calls.transfer)):
        yield line, by_event(calls.start, np.where(own, calls.ready, calls.start), lines[line])


def kernel_classes(record: Record) -> Codes:
    """Return the class of each device row, as an index into CLASSES; -1 for rows that are not compute kernels."""
    device = record.device
    kernels = np.flatnonzero(device.kind == KERNEL)
    classes = np.full(device.start.size, -1, np.int64)
    hints = (*record.names, "Optimizer.step#", "")
    pairs, which = np.unique(
        device.name[kernels] * len(hints) + _hints(record, kernels) % len(hints), return_inverse=True
    )
    known = [
        CLASSES.index(kernel_class(record.names[pair // len(hints)], hints[pair % len(hints)]))
        for pair in pairs.tolist()
    ]
    classes[kernels] = np.array(known, np.int64)[which] if known else -1
    return classes


def _hints(record: Record, rows: Codes) -> Codes:
    """Return what may show the class of a kernel if its name does not.

    This is the name code of the op around its launch, -1 for none, -2 if the optimizer ran.
    """
    hints = launching_ops(record, rows)
    hints[in_optimizer(record, rows)] = _IN_OPTIMIZER
    return hints


def in_optimizer(record: Record, rows: Codes) -> Flags:
    """Return whether each device row was launched inside an optimizer's step."""
    launch = record.device.launch[rows]
    if not record.host.start.size:
        return np.zeros(rows.size, np.bool_)
    times = record.host.start[launch]
    return (launch >= 0) & (record.host.spans(Trait.OPTIMIZER).within(times, times + 1) > 0)


def launching_ops(record: Record, rows: Codes) -> Codes:
    """Return the name code of the innermost op around the launch of each device row, or -1."""
    op = ops_around(record, record.device.launch[rows])
    return np.where(op >= 0, record.host.name[op], -1) if record.host.name.size else op


def ops_around(record: Record, calls: Codes) -> Codes:
    """Return the host row of the innermost op around each call, given as a host row, or -1."""
    host = record.host
    found = np.full(calls.size, -1, np.int64)
    if not host.lane.size:
        return found
    lanes = np.where(calls >= 0, host.lane[calls], -1)
    for lane, own in group_rows(lanes):
        if lane < 0:
            continue
        ops = host.having(Trait.OP, [lane])
        inner = Nest(host.start[ops], host.stop[ops]).innermost(host.start[calls[own]])
        found[own[inner >= 0]] = ops[inner[inner >= 0]]
    return found


def _classes(record: Record, partition: Partition, classes: Codes) -> Counter[str]:
    device = record.device
    rows = np.flatnonzero(classes >= 0)
    sums = by_priority(device.start[rows], device.stop[rows], classes[rows], len(CLASSES), partition.lines["compute"])
    return Counter(dict(zip(CLASSES, sums.tolist(), strict=True)))


def direction(name: str) -> str:
    """Return the direction of a copy, by its name.

    >>> direction("Memcpy HtoD (Pinned -> Device)"), direction("Memset (Device)"), direction("CopyDeviceToHost")
    ('HtoD', 'memset', 'other')
    """
    match = _DIRECTION.match(name)
    if match:
        return match[1]
    return "memset" if name.startswith("Memset") else "other"


def _host(record: Record, line: Intervals, calls: Intervals) -> Counter[str]:
    """Split `idle.host` by what the host did: collectives of its own, calls of the runtime, or dispatch of ops."""
    shared = line & Intervals.of(record.gloo.start, record.gloo.stop)
    launching = (line - shared) & calls
    rest = line.total - shared.total - launching.total
    return Counter({"host communication": shared.total, "launch API": launching.total, "op dispatch": rest})


def _blockers(record: Record, partition: Partition, gaps: Gaps) -> Counter[str]:
    """Split `idle.sync` by what had blocked: the innermost op around the call, else the call."""
    ns = partition.lines["idle.sync"].within(gaps.start, gaps.stop)
    held = np.flatnonzero(ns)
    calls = gaps.blocker[held]
    names, code = record.names, record.host.name
    ops = dict(zip(calls.tolist(), ops_around(record, calls).tolist(), strict=True))

    def name_call(call: int) -> str:
        return f"{names[code[ops[call]]]} ({names[code[call]]})" if ops[call] >= 0 else names[code[call]]

    return _sums(calls, ns[held], name_call)


def _allocations(record: Record, partition: Partition, gaps: Gaps) -> Counter[str]:
    """Split `idle.alloc` by the call that the launching thread was in."""
    host, sums = record.host, Counter[str]()
    for lane, own in _launching_lanes(record, gaps):
        rows = host.having(Trait.ALLOC, [lane])
        shares = by_event(host.start[rows], host.stop[rows], partition.lines["idle.alloc"] & own)
        sums += _sums(host.name[rows], shares, lambda code: record.names[code])
    return sums


def python_by_annotation(record: Record, partition: Partition) -> Counter[str]:
    """Split `idle.python` by the innermost annotation that the launching thread was in."""
    span = partition.lines["idle.python"]
    if partition.gaps is None:
        return _sum_annotations(record, record.training_lane, span)
    sums: Counter[str] = Counter()
    for lane, own in _launching_lanes(record, partition.gaps):
        sums += _sum_annotations(record, lane, span & own)
    return sums


def _sum_annotations(record: Record, lane: int, span: Intervals) -> Counter[str]:
    until, names = annotations_on(record, lane)
    return by_stretch(span, until, [name or NO_ANNOTATION for name in names], NO_ANNOTATION)


def _launching_lanes(record: Record, gaps: Gaps) -> Iterator[tuple[int, Intervals]]:
    """Yield each thread that launched an event that ended a gap, with those gaps."""
    launch = np.where(gaps.ender >= 0, record.device.launch[gaps.ender], -1)
    lanes = np.where(launch >= 0, record.host.lane[launch], -1) if record.host.lane.size else launch
    for lane, own in group_rows(lanes):
        if lane >= 0:
            yield lane, Intervals.of(gaps.start[own], gaps.stop[own])


def _sums(codes: Codes, ns: Ns, names: Callable[[int], str]) -> Counter[str]:
    """Sum time by name; `names` gives the name of each code, and different codes may have one name."""
    found, which = np.unique(codes, return_inverse=True)
    totals = np.zeros(found.size, np.int64)
    np.add.at(totals, which, ns)
    sums: Counter[str] = Counter()
    for code, total in zip(found.tolist(), totals.tolist(), strict=True):
        if total:
            sums[names(code)] += total
    return sums
