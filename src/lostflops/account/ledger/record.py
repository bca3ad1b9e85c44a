"""One rank's trace for the ledger, as columns of numbers. This module knows tables, not rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from lostflops.account.facts.clock_error import RESOLUTION
from lostflops.account.facts.flops import FORMULAS, CallWork, op_work
from lostflops.account.ledger.batches import BatchVocabulary, RankBatch
from lostflops.account.ledger.host_traits import NOT_COMPUTE, Trait, traits
from lostflops.store.intervals import Intervals
from lostflops.store.row_groups import group_rows

if TYPE_CHECKING:
    from lostflops.store.run import Run

T = TypeVar("T")
Ns = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def distinct(codes: Codes) -> list[int]:
    """Return the numbers that occur, none of them negative: for lanes, which are few, this is faster than sorting.

    >>> distinct(np.array([3, 1, 3]))
    [1, 3]
    """
    found: list[int] = np.flatnonzero(np.bincount(codes)).tolist()
    return found


EVENTS_AT_ONCE: Final = 1_000_000
"""Ranks are read together up to this many events, so that thousands of small ones do not need a query each."""

_EVENTS_KEPT: Final = 1_200_000
"""Runs with at most this many events are read once, and their records are kept while the run is open: about 120 MB."""
_EVENTS_OF_SAMPLE: Final = 50
"""A stack sample takes as much memory as this many events."""

KINDS: Final = ("kernel", "comm", "memcpy", "memset")
KERNEL, COMM, MEMCPY, MEMSET = range(4)

UNKNOWN_GROUP: Final = "unknown group"
UNKNOWN_OP: Final = "unknown communication"

_DEVICE: Final = f"kind in {KINDS}"
_HOST: Final = "kind in ('op', 'runtime', 'annotation')"
_NAME_KEY: Final = "hash(kind, name)"
_NOTE: Final = "coalesce(annotation, '')"
_NOTE_KEY: Final = f"hash({_NOTE})"
_MODULE: Final = "coalesce(module, '')"
_GROUP: Final = "coalesce(group_id, '')"
_GROUP_KEY: Final = f"hash({_GROUP})"
_CALLED: Final = f"coalesce(op, '{UNKNOWN_OP}')"
_CALLED_KEY: Final = f"hash({_CALLED})"
_EFFORT_KEY: Final = "hash(name, shapes, dtypes, inputs)"


@dataclass(frozen=True, kw_only=True)
class HostEvents:
    """Ops, runtime calls and annotations."""

    event: Codes
    lane: Codes
    start: Ns
    stop: Ns
    name: Codes
    """Index into the record's names."""
    traits: Codes

    def having(self, wanted: int, lanes: Sequence[int] | None = None) -> Codes:
        """Return rows with any of these traits, on these lanes or on all."""
        if lanes is None:
            return np.flatnonzero(self.traits & wanted)
        own = [self._by_lane[lane] for lane in set(lanes) if lane in self._by_lane]
        rows = own[0] if len(own) == 1 else np.sort(np.concatenate([np.empty(0, np.int64), *own]))
        found: Codes = rows[(self.traits[rows] & wanted) != 0]
        return found

    @cached_property
    def _by_lane(self) -> dict[int, Codes]:
        return dict(group_rows(self.lane))

    def spans(self, wanted: int, lanes: Sequence[int] | None = None) -> Intervals:
        """Return when any event with one of these traits ran."""
        rows = self.having(wanted, lanes)
        return Intervals.of(self.start[rows], self.stop[rows])

    def computing(self, lane: int) -> Codes:
        """Return ops on a lane that compute, an outer op before those inside it."""
        rows = self.having(Trait.OP, [lane])
        rows = rows[(self.traits[rows] & NOT_COMPUTE) == 0]
        ordered: Codes = rows[np.lexsort((-self.stop[rows], self.start[rows]))]
        return ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEvents:
    """Kernels and copies."""

    event: Codes
    lane: Codes
    start: Ns
    stop: Ns
    kind: Codes
    name: Codes
    annotation: Codes
    module: Codes
    step: Codes
    launch: Codes
    """Row of the call that launched each; -1 if it is not recorded."""
    occupancy: npt.NDArray[np.float64]
    """In percent; -1 if it is not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSteps:
    """Training steps in order of time."""

    number: Codes
    lane: Codes
    start: Ns
    stop: Ns
    device_start: Ns
    """-1 if nothing was launched in the step."""
    device_stop: Ns
    """-1 if nothing was launched in the step."""

    @property
    def on_device(self) -> bool:
        return bool((self.device_start >= 0).any())


@dataclass(frozen=True, slots=True)
class Gloo:
    """Collectives that run on threads of the host."""

    event: Codes
    start: Ns
    stop: Ns
    noticed: Ns
    """When the program knew that each was over."""
    module: Codes


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCollectives:
    """Groups, operations and waits of the communication events of a rank."""

    event: Codes
    group: Codes
    """Index into `groups`."""
    wait: Ns
    """Time that it waited, in ns; 0 if it did not, or if that is unknown."""
    late: Codes
    """Rank that it waited for; -1 if it did not wait, or if that is unknown."""
    transfer: Flags
    """Whether it is one end of a transfer."""
    groups: tuple[str, ...]
    op: Codes
    """Index into `ops`."""
    ops: tuple[str, ...]

    def rows(self, events: Codes) -> Codes:
        """Return the row of each event, or -1."""
        order = np.argsort(self.event, kind="stable")
        if not order.size:
            return np.full(events.size, -1, np.int64)
        at = order[np.minimum(np.searchsorted(self.event[order], events), order.size - 1)]
        return np.where(self.event[at] == events, at, -1)

    def name(self, group: int) -> str:
        return (self.groups[group] if group >= 0 else "") or UNKNOWN_GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Communication as the ledger sees it; `group`, `late`, `transfer` and `op` are as in `RankCollectives`."""

    event: Codes
    row: Codes
    """Device row; -1 on a CPU rank."""
    start: Ns
    """From `start` to `ready` a participant was missing."""
    ready: Ns
    """From `ready` to `stop` data moved."""
    stop: Ns
    group: Codes
    late: Codes
    transfer: Flags
    op: Codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Formulas:
    """Ops that have a formula for their FLOPs."""

    event: Codes
    lane: Codes
    start: Ns
    stop: Ns
    effort: Codes
    """Index into `efforts`."""
    efforts: tuple[tuple[str, CallWork | None], ...]


@dataclass(frozen=True, slots=True)
class Numbered:
    """Ops with a sequence number of autograd."""

    lane: Codes
    start: Ns
    stop: Ns
    forward_thread: Codes
    """0 on forward ops."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Ops and calls of modules on a rank without a device, each with its module."""

    lane: Codes
    start: Ns
    stop: Ns
    module: Codes


@dataclass(frozen=True, slots=True)
class Samples:
    """Stacks of the training thread."""

    time: Ns
    """When each was read."""
    stack: npt.NDArray[np.object_]
    """Its frames as a text."""


# Without slots: what many questions ask of a rank is found once.
@dataclass(frozen=True, kw_only=True)
class Record:
    """Everything that the ledger needs of one rank."""

    rank: int
    names: tuple[str, ...]
    """Texts of the codes of names, `""` for none."""
    annotations: tuple[str, ...]
    """Texts of the codes of annotations, `""` for none."""
    modules: tuple[str, ...]
    """Texts of the codes of modules, `""` for none."""
    host: HostEvents
    device: DeviceEvents
    steps: RecordedSteps
    gloo: Gloo
    collectives: RankCollectives
    formulas: Formulas
    numbered: Numbered
    placed: Placed
    samples: Samples

    @property
    def on_device(self) -> bool:
        return self.device.start.size > 0

    @cached_property
    def training_lane(self) -> int:
        """The thread with the steps, else the one with most ops; -1 when there is neither."""
        if self.steps.lane.size:
            return int(np.bincount(self.steps.lane).argmax())
        ops = self.host.lane[self.host.having(Trait.OP)]
        return int(np.bincount(ops).argmax()) if ops.size else -1

    @cached_property
    def communication(self) -> Communication:
        """Communication kernels, or on a CPU rank the host's own collectives."""
        device, known = self.device, self.collectives
        if self.on_device:
            row = np.flatnonzero(device.kind == COMM)
            event, start, stop = device.event[row], device.start[row], device.stop[row]
        else:
            event, start, stop = self.gloo.event, self.gloo.start, self.gloo.stop
            row = np.full(event.size, -1, np.int64)
        at = known.rows(event)
        if not known.event.size:
            none = np.full(event.size, -1, np.int64)
            return Communication(
                event=event,
                row=row,
                start=start,
                ready=start,
                stop=stop,
                group=none,
                late=none,
                transfer=np.zeros(event.size, np.bool_),
                op=none,
            )
        found = at >= 0
        ready = np.minimum(start + np.where(found, known.wait[at], 0), stop)
        group, late, op = (np.where(found, codes[at], -1) for codes in (known.group, known.late, known.op))
        return Communication(
            event=event,
            row=row,
            start=start,
            ready=ready,
            stop=stop,
            group=group,
            late=late,
            transfer=found & known.transfer[at],
            op=op,
        )

    def keep(self, key: str, make: Callable[[], T]) -> T:
        """Return what `make` gives; it is called once for each record."""
        kept = self._results
        if key not in kept:
            kept[key] = make()
        found: T = kept[key]
        return found

    @cached_property
    def _results(self) -> dict[str, Any]:
        return {}

    @property
    def host_begins(self) -> int:
        """When the recording of the host began."""
        return int(self.host.start.min()) if self.host.start.size else np.iinfo(np.int64).max


def records(run: Run, ranks: Sequence[int]) -> Iterator[Record]:
    """Yield the ranks that recorded any time, in order."""
    sizes = run.keep("events of ranks", lambda: _sizes(run))
    if (
        sizes
        and sum(sizes.values()) + _EVENTS_OF_SAMPLE * run.rows("select count(*) from samples")[0][0] <= _EVENTS_KEPT
    ):
        kept = run.keep("records", lambda: {one.rank: one for one in _read_all(run, sizes)})
        yield from (kept[rank] for rank in sorted(set(ranks) & kept.keys()))
        return
    for batch in _batches(sizes, ranks):
        yield from _read_records(run, batch)


def _sizes(run: Run) -> dict[int, int]:
    """Return the number of events of each rank that recorded any."""
    recorded: dict[int, int] = dict(run.rows("select rank, events from ranks where events > 0 order by rank"))
    if not run.steps:
        return recorded
    # A rank without an event in these steps is still one that recorded time.
    return dict.fromkeys(recorded, 0) | dict(run.rows("select rank, count(*) from events group by rank order by rank"))


def _read_all(run: Run, sizes: Mapping[int, int]) -> Iterator[Record]:
    return (_frozen(one) for batch in _batches(sizes, list(sizes)) for one in _read_records(run, batch))


def _frozen(record: Record) -> Record:
    """Make the arrays of a record read-only: several callers share it."""
    for part in fields(record):
        value = getattr(record, part.name)
        for array in (getattr(value, one.name) for one in fields(value)) if is_dataclass(value) else ():
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
    return record


def record_of(run: Run, rank: int) -> Record:
    """Read one rank, even if it recorded no time."""
    return next(_read_records(run, [rank]))


def steps_of(run: Run, ranks: Sequence[int]) -> Iterator[RecordedSteps]:
    """Return the steps of each of these ranks, without anything else that it recorded."""
    found = _steps(run, f"rank in ({', '.join(map(str, ranks))})", ranks)
    return (RecordedSteps(**found.of(rank)) for rank in ranks)


def _batches(sizes: Mapping[int, int], ranks: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    room = EVENTS_AT_ONCE
    for rank in sorted(set(ranks) & sizes.keys()):
        if batch and sizes[rank] > room:
            yield batch
            batch, room = [], EVENTS_AT_ONCE
        batch.append(rank)
        room -= sizes[rank]
    if batch:
        yield batch


_TIMES: Final = "rank, event, lane, start, start + dur as stop"


def _read_records(run: Run, ranks: Sequence[int]) -> Iterator[Record]:
    chosen = f"rank in ({', '.join(map(str, ranks))})"
    names = BatchVocabulary(
        run, _NAME_KEY, "kind, coalesce(name, '')", f"events where {chosen} and ({_DEVICE} or {_HOST})"
    )
    notes = BatchVocabulary(run, _NOTE_KEY, _NOTE, f"events where {chosen} and {_DEVICE}")
    modules, module_key = _modules(run, chosen)
    link = f"{_TIMES}, coalesce(correlation, -1) as correlation, {_NAME_KEY} as name"
    host = RankBatch(run, f"select {link} from events where {chosen} and {_HOST}", ranks)
    device = RankBatch(
        run,
        f"select {link}, {_NOTE_KEY} as annotation, {module_key} as module, coalesce(step, -1) as step, "
        f"coalesce(occupancy, -1) as occupancy from events where {chosen} and {_DEVICE}",
        ranks,
    )
    gloo = RankBatch(run, _host_collectives(chosen, module_key), ranks)
    steps, numbered = _steps(run, chosen, ranks), _read_numbered_ops(run, chosen, ranks)
    meetings, groups, made = _meetings(run, chosen, ranks)
    formulas, efforts, works = _read_formula_ops(run, chosen, ranks)
    placed = RankBatch(run, _query_module_ops(chosen, module_key), ranks)
    samples = RankBatch(run, f"select rank, time, stack from samples where {chosen} and stack <> ''", ranks)
    kind_codes = np.array([KINDS.index(kind) if kind in KINDS else -1 for kind, _ in names.values], np.int64)
    trait_codes = np.array([0 if kind in KINDS else traits(kind, name) for kind, name in names.values], np.int64)
    texts = tuple(name for _, name in names.values)
    for rank in ranks:
        calls, correlation = _host(host.of(rank), names, trait_codes)
        work = _device(device.of(rank), (names, notes, modules), kind_codes, host=calls, called=correlation)
        own = gloo.of(rank)
        yield Record(
            rank=rank,
            names=texts,
            annotations=tuple(note for (note,) in notes.values),
            modules=tuple(module for (module,) in modules.values),
            host=calls,
            device=work,
            steps=RecordedSteps(**steps.of(rank)),
            gloo=Gloo(own["event"], own["start"], own["stop"], own["noticed"], modules.codes(own["module"])),
            collectives=_collectives(meetings.of(rank), groups, made),
            formulas=_formulas(formulas.of(rank), efforts, works),
            numbered=Numbered(**numbered.of(rank)),
            placed=_placed_rows(placed.of(rank), modules),
            samples=Samples(**samples.of(rank)),
        )


def _host_collectives(chosen: str, module_key: str) -> str:
    """Return the query for collectives of hosts. A send ends when its peer has received: gloo records it until the
    program waits for it, which may be the end of the step."""
    return f"""
        with chosen_events as (
            select rank, event, lane, start, start + dur as stop, {module_key} as module
            from events where {chosen} and kind = 'host_comm'
        ), transfers as (
            select rank, event, meeting, op, arrived + c.stop - c.start as ended, coalesce(spread, 0) as spread,
                   coalesce(uncertainty, 0) as uncertainty, coalesce(host, rank::text) as host
            from arrivals join collectives c using (rank, event) left join clocks using (rank)
            left join (select rank, host from ranks) using (rank)
            where is_transfer and arrived is not null and metadata = 'gloo'
        ), late as (
            select sent.rank, sent.event, max(sent.ended - received.ended) as late
            from transfers sent join transfers received using (meeting)
            where sent.op = 'send' and received.op = 'recv' and sent.rank <> received.rank
              and sent.ended - received.ended > {RESOLUTION} * (sent.spread + received.spread)
                  + if(sent.host = received.host, 0, sent.uncertainty + received.uncertainty)
            group by all
        )
        select rank, event, lane, start, greatest(start, stop - coalesce(late, 0)) as stop, stop as noticed, module
        from chosen_events left join late using (rank, event)"""


def _steps(run: Run, chosen: str, ranks: Sequence[int]) -> RankBatch:
    return RankBatch(
        run,
        "select rank, step as number, lane, start, stop, coalesce(device_start, -1) as device_start, "
        f"coalesce(device_stop, -1) as device_stop from steps where {chosen} order by start",
        ranks,
    )


def _read_numbered_ops(run: Run, chosen: str, ranks: Sequence[int]) -> RankBatch:
    return RankBatch(
        run,
        "select rank, lane, start, start + dur as stop, coalesce(forward_thread, 0) as forward_thread from events "
        f"where {chosen} and kind = 'op' and sequence is not null",
        ranks,
    )


def _meetings(run: Run, chosen: str, ranks: Sequence[int]) -> tuple[RankBatch, BatchVocabulary, BatchVocabulary]:
    groups = BatchVocabulary(run, _GROUP_KEY, _GROUP, f"collectives where {chosen}")
    ops = BatchVocabulary(run, _CALLED_KEY, _CALLED, f"collectives where {chosen}")
    found = RankBatch(
        run,
        f"select rank, event, {_GROUP_KEY} as group_key, coalesce(wait, 0) as wait, coalesce(late_rank, -1) as late, "
        f"coalesce(is_transfer, op in ('send', 'recv'), false) as transfer, {_CALLED_KEY} as op "
        "from collectives left join arrivals using (rank, event) "
        f"where {chosen} and event is not null",
        ranks,
    )
    return found, groups, ops


def _collectives(columns: dict[str, Any], groups: BatchVocabulary, ops: BatchVocabulary) -> RankCollectives:
    return RankCollectives(
        event=columns["event"],
        group=groups.codes(columns["group_key"]),
        wait=columns["wait"],
        late=columns["late"].astype(np.int64),
        transfer=columns["transfer"],
        groups=tuple(group for (group,) in groups.values),
        op=ops.codes(columns["op"]),
        ops=tuple(op for (op,) in ops.values),
    )


def _read_formula_ops(
    run: Run, chosen: str, ranks: Sequence[int]
) -> tuple[RankBatch, BatchVocabulary, tuple[tuple[str, CallWork | None], ...]]:
    """Read ops with a formula, their distinct arguments, and the work of these."""
    known = f"events where {chosen} and kind = 'op' and name in ({', '.join(map(_quote_text, sorted(FORMULAS)))})"
    efforts = BatchVocabulary(run, _EFFORT_KEY, "name, shapes, dtypes, inputs", known)
    works = tuple((name, op_work(name, *told)) for name, *told in efforts.values)
    return RankBatch(run, f"select {_TIMES}, {_EFFORT_KEY} as effort from {known}", ranks), efforts, works


_NO_KEY: Final = "0::ubigint"


def _modules(run: Run, chosen: str) -> tuple[BatchVocabulary, str]:
    """Return the modules of these ranks, and their key in a query; most runs have no modules, and read none."""
    told = run.rows(f"select 1 from events where {chosen} and module is not null limit 1")
    key, rows = (f"hash({_MODULE})", f"events where {chosen}") if told else (_NO_KEY, "(select null as module)")
    return BatchVocabulary(run, key, _MODULE, rows), key


def _query_module_ops(chosen: str, module_key: str) -> str:
    """Return the query for ops with modules: only a rank without a device is accounted for by its thread."""
    on_device = f"select rank from events where {chosen} and {_DEVICE}"
    wanted = "false" if module_key == _NO_KEY else f"kind in ('op', 'module') and rank not in ({on_device})"
    return (
        f"select rank, lane, start, start + dur as stop, {module_key} as module from events where {chosen} and {wanted}"
    )


def _placed_rows(columns: dict[str, Any], modules: BatchVocabulary) -> Placed:
    return Placed(columns["lane"], columns["start"], columns["stop"], modules.codes(columns["module"]))


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _formulas(
    columns: dict[str, Any], efforts: BatchVocabulary, works: tuple[tuple[str, CallWork | None], ...]
) -> Formulas:
    effort = efforts.codes(columns["effort"])
    return Formulas(
        event=columns["event"],
        lane=columns["lane"],
        start=columns["start"],
        stop=columns["stop"],
        effort=effort,
        efforts=works,
    )


def _host(columns: dict[str, Any], names: BatchVocabulary, trait_codes: Codes) -> tuple[HostEvents, Codes]:
    """Return the host's rows, and their correlations."""
    name = names.codes(columns["name"])
    row_traits = trait_codes[name] if name.size else name
    host = HostEvents(
        event=columns["event"],
        lane=columns["lane"],
        start=columns["start"],
        stop=columns["stop"],
        name=name,
        traits=row_traits,
    )
    correlation = np.where(row_traits & Trait.RUNTIME, columns["correlation"], -1)
    return host, correlation


def _device(
    columns: dict[str, Any],
    vocabularies: tuple[BatchVocabulary, BatchVocabulary, BatchVocabulary],
    kind_codes: Codes,
    *,
    host: HostEvents,
    called: Codes,
) -> DeviceEvents:
    names, notes, modules = vocabularies
    name = names.codes(columns["name"])
    return DeviceEvents(
        event=columns["event"],
        lane=columns["lane"],
        start=columns["start"],
        stop=columns["stop"],
        kind=kind_codes[name] if name.size else name,
        name=name,
        annotation=notes.codes(columns["annotation"]),
        module=modules.codes(columns["module"]),
        step=columns["step"],
        launch=_launches(columns["correlation"], host, called),
        occupancy=columns["occupancy"],
    )


def _launches(correlation: Codes, host: HostEvents, called: Codes) -> Codes:
    """Return the row of the earliest call with each correlation: the runtime and the driver below it may share one."""
    calls = np.flatnonzero(called >= 0)
    calls = calls[np.lexsort((host.start[calls], called[calls]))]
    if not calls.size:
        return np.full(correlation.size, -1, np.int64)
    at = np.minimum(np.searchsorted(called[calls], correlation), calls.size - 1)
    return np.where(called[calls][at] == correlation, calls[at], -1)
