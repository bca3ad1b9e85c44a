"""Ground truth of a synthetic run: the answers that an analysis of its traces is checked against."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from .declaration import Cause, Clock
from .device_window import DeviceWindow, device_window
from .job import SyntheticJob
from .ledger import LINES, Segment, segments, step_edges
from .records import RankRecord, Simulation, SyntheticCollective


@dataclass(frozen=True, slots=True)
class StepTruth:
    """One step of one rank."""

    step: int
    start: int
    stop: int
    lines: Mapping[str, int]
    """Time on every line of the ledger; they sum to stop - start."""
    late_ranks: Mapping[int, int]
    """`comm.wait` by the rank that arrived last in the collective that was waited for, even if that rank was itself
    delayed in another group."""
    flops: int

    @property
    def wall(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class RankTruth:
    """One rank, in true time. `own_*` values are the same instants on its host's clock, which its trace shows; without
    drift they differ by a constant, so that lines and walls are equal."""

    rank: int
    host: int
    clock: Clock
    steps: tuple[StepTruth, ...]
    segments: tuple[Segment, ...]
    device_window: DeviceWindow
    event_counts: Mapping[str, int]

    @property
    def wall(self) -> int:
        return sum(step.wall for step in self.steps)

    @property
    def own_wall(self) -> int:
        return self.clock.read(self.steps[-1].stop) - self.clock.read(self.steps[0].start)

    @property
    def lines(self) -> dict[str, int]:
        return {line: sum(step.lines[line] for step in self.steps) for line in LINES}

    @property
    def own_lines(self) -> dict[str, int]:
        """Lines of the whole window on the rank's own clock; they sum to `own_wall`."""
        total = dict.fromkeys(LINES, 0)
        for segment in self.segments:
            total[segment.line] += self.clock.read(segment.stop) - self.clock.read(segment.start)
        return total

    @property
    def late_ranks(self) -> dict[int, int]:
        total: Counter[int] = Counter()
        for step in self.steps:
            total.update(step.late_ranks)
        return dict(total)


@dataclass(frozen=True, slots=True)
class CollectiveTruth:
    """One collective or send/recv, in true time."""

    group: str
    op: str
    bytes: int
    members: tuple[int, ...]
    ordinal: int
    """Number within the group from 0, or within its (sender, receiver) pair for a send/recv."""
    seqs: Mapping[int, int]
    """Number from 1 of each rank's calls in the group: equal on all ranks of a collective, not on both ends of a
    send/recv."""
    arrivals: Mapping[int, int]
    """Arrival times by rank."""
    ends: Mapping[int, int]
    """End times by rank."""
    late_rank: int
    transfer: int
    """Time from the last arrival to the end."""


@dataclass(frozen=True, slots=True)
class StragglerTruth:
    """A straggler and what it costs."""

    rank: int
    cause: Cause
    steps: tuple[int, ...] | None
    cost: int
    """Time that the same run would save without it: the ranks' walls now, minus those of a rerun without it."""
    charged: int
    """`comm.wait` of the other ranks in collectives where it arrived last."""


@dataclass(frozen=True, slots=True)
class LostRecord:
    """A record that the written trace lacks."""

    rank: int
    kind: str
    """`kernel`, `launch` or `metadata`."""
    correlation: int


@dataclass(frozen=True, slots=True)
class Truth:
    ranks: tuple[RankTruth, ...]
    collectives: tuple[CollectiveTruth, ...]
    stragglers: tuple[StragglerTruth, ...]
    clocks: Mapping[int, Clock]
    lost: tuple[LostRecord, ...]

    @property
    def wall(self) -> int:
        return sum(rank.wall for rank in self.ranks)

    @property
    def lines(self) -> dict[str, int]:
        """The ledger of the run: the sum of its ranks."""
        totals = [rank.lines for rank in self.ranks]
        return {line: sum(total[line] for total in totals) for line in LINES}


def total_wall(simulation: Simulation) -> int:
    """Return the sum over ranks of the window of whole steps."""
    edges = [list(step_edges(record).values()) for record in simulation.records]
    return sum(spans[-1][1] - spans[0][0] for spans in edges)


def rank_truth(record: RankRecord, cluster: SyntheticJob) -> RankTruth:
    host = cluster.host_of(record.rank)
    clock = cluster.clock_of(host)
    pieces = segments(record)
    return RankTruth(
        record.rank,
        host,
        clock,
        _steps(record, pieces),
        tuple(pieces),
        device_window(record, clock),
        event_counts(record),
    )


def _steps(record: RankRecord, pieces: list[Segment]) -> tuple[StepTruth, ...]:
    edges = step_edges(record)
    remaining = iter(pieces)
    piece = next(remaining, None)
    result = []
    for step, (start, stop) in edges.items():
        lines, late = dict.fromkeys(LINES, 0), Counter[int]()
        while piece is not None and piece.start < stop:
            # A kernel of the step before may still run when the first one of this step starts on another stream.
            length = min(piece.stop, stop) - max(piece.start, start)
            lines[piece.line] += length
            if piece.line == "comm.wait":
                late[piece.late_rank] += length
            if piece.stop > stop:
                break
            piece = next(remaining, None)
        result.append(StepTruth(step, start, stop, lines, dict(late), record.flops[step]))
    return tuple(result)


def collective_truth(collective: SyntheticCollective) -> CollectiveTruth:
    members = sorted(collective.members)
    return CollectiveTruth(
        collective.group.name,
        collective.op,
        collective.bytes,
        collective.members,
        collective.ordinal,
        {rank: collective.seqs[rank] for rank in members},
        {rank: collective.events[rank].start for rank in members},
        {rank: collective.events[rank].stop for rank in members},
        collective.last_rank,
        collective.duration,
    )


def event_counts(record: RankRecord) -> dict[str, int]:
    """Return the number of events of each category in the rank's trace, without lost records; arrows count once per
    end."""
    counts: Counter[str] = Counter()
    for event in record.host_events:
        if event.lost:
            continue
        counts[event.category] += 1
        counts["fwdbwd"] += event.sequence >= 0
        counts["ac2g"] += event.launches
    for device_event in record.device_events:
        if not device_event.lost:
            counts[device_event.category] += 1
            counts["ac2g"] += 1
    return dict(counts)


def lost_records(record: RankRecord) -> list[LostRecord]:
    result = []
    for event in record.device_events:
        correlation = event.launch.correlation
        flags = (("kernel", event.lost), ("launch", event.launch.lost), ("metadata", event.metadata_lost))
        result += [LostRecord(record.rank, kind, correlation) for kind, lost in flags if lost]
    return result
