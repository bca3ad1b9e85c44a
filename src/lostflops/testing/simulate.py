"""Run the hosts and devices of a declared cluster: every start and end, in integer nanoseconds of true time.

A device event starts when it was launched (plus latency), its stream is free and what it waits for has ended. A
collective starts on each rank by itself, transfers once all members have started, and ends everywhere at once. Times
depend on nothing but these rules, so the order in which events are processed does not matter.

Collectives on several streams of a group (`comm_streams`) share its link: their bytes take turns, latencies overlap.

Not modelled: limits on queued launches, kernels slowing each other down, links shared by other collectives, CUDA
graphs, memory, randomness other than the declared noise of kernels, hosts and network.
"""

from .host import SyntheticHost
from .job import SyntheticJob
from .meetings import SyntheticMeetings
from .program import Program, TrainingLoop
from .records import DeviceEvent, Simulation, SyntheticCollective


class _Engine:
    def __init__(self, kernel_gap: int, runnable: list[DeviceEvent]) -> None:
        self._kernel_gap = kernel_gap
        self._runnable = runnable
        self._blocked: dict[int, list[Program]] = {}
        self._unfinished = 0

    def run(self, programs: list[Program]) -> None:
        self._unfinished = len(programs)
        for program in programs:
            self._resume(program, None)
            self._drain()
        assert not self._unfinished, "deadlock: simulated ranks wait for each other forever"

    def _drain(self) -> None:
        while self._runnable:
            event = self._runnable.pop()
            event.start = event.ready
            if event.collective is None:
                self._finish(event, event.start + event.duration)
            else:
                self._arrive(event.collective, event)

    def _arrive(self, collective: SyntheticCollective, event: DeviceEvent) -> None:
        collective.events[event.rank] = event
        # Ties go to the lowest rank, whatever the order in which arrivals are worked off.
        if (event.start, -event.rank) > (collective.last_arrival, -collective.last_rank):
            collective.last_arrival, collective.last_rank = event.start, event.rank
        collective.started += 1
        if collective.started == len(collective.members):
            self._transfer(collective)

    def _transfer(self, collective: SyntheticCollective) -> None:
        """Begin the transfer when all have arrived and the link is free."""
        before = collective.before
        if before is not None and before.begun < 0:
            before.waiting = collective
            return
        free = before.begun + before.busy if before is not None else 0
        collective.begun = max(collective.last_arrival, free)
        for member in collective.events.values():
            self._finish(member, collective.begun + collective.duration)
        if collective.waiting is not None:
            self._transfer(collective.waiting)

    def _finish(self, event: DeviceEvent, stop: int) -> None:
        event.stop = stop
        for follower in event.followers:
            gap = self._kernel_gap if follower.stream == event.stream else 0
            follower.ready = max(follower.ready, stop + gap)
            follower.pending -= 1
            if not follower.pending:
                self._runnable.append(follower)
        event.followers = []
        for program in self._blocked.pop(id(event), ()):
            self._resume(program, stop)

    def _resume(self, program: Program, stop: int | None) -> None:
        """Let a host run until it blocks on an unfinished event."""
        try:
            awaited = next(program) if stop is None else program.send(stop)
            while awaited.stop >= 0:
                awaited = program.send(awaited.stop)
        except StopIteration:
            self._unfinished -= 1
        else:
            self._blocked.setdefault(id(awaited), []).append(program)


def simulate(cluster: SyntheticJob) -> Simulation:
    runnable: list[DeviceEvent] = []
    meetings = SyntheticMeetings(cluster)
    hosts = [SyntheticHost(rank, cluster, runnable) for rank in range(cluster.ranks)]
    programs = [TrainingLoop(cluster, host, meetings).run() for host in hosts]
    _Engine(cluster.kernel_gap, runnable).run(programs)
    return Simulation(tuple(host.record for host in hosts), tuple(meetings.all))
