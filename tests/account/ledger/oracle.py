"""The ledger of a tiny trace, one nanosecond at a time, from the written rules: slow, naive, and independent of the
code that it checks."""

from collections import Counter, defaultdict
from dataclasses import dataclass

BLOCKING = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cuStreamSynchronize",
    "hipDeviceSynchronize",
    "cudaMemcpy",
    "hipMemcpyWithStream",
)
ALLOCATING = ("cudaMalloc", "cudaFree", "cudaHostAlloc", "hipMalloc", "cuMemMap")
DATA = "enumerate(DataLoader)#"
PYTHON_AROUND_OPS = (DATA, "Optimizer.step#", "Optimizer.zero_grad#")
COMMUNICATING = ("c10d::", "_c10d_functional::", "record_param_comms")


@dataclass(frozen=True)
class Host:
    kind: str
    name: str
    lane: int
    start: int
    stop: int
    correlation: int = -1

    @property
    def is_call(self) -> bool:
        return self.kind == "runtime"

    @property
    def is_op(self) -> bool:
        return self.kind == "op"

    @property
    def is_data(self) -> bool:
        return not self.is_call and self.name.startswith(DATA)

    @property
    def is_alloc(self) -> bool:
        return self.is_call and self.name in ALLOCATING

    @property
    def is_compile(self) -> bool:
        return not self.is_call and (self.name.endswith("(dynamo_timed)") or self.name == "entire_frame_compile")

    @property
    def is_comm(self) -> bool:
        return self.is_op and self.name.startswith(COMMUNICATING)

    @property
    def is_wrapper(self) -> bool:
        """Runs a node of the autograd graph, and nothing of its own."""
        if self.name.startswith("CompiledFunctionBackward"):
            return False
        node = self.name.rstrip("0123456789").endswith("Backward") and "::" not in self.name
        return self.is_op and (node or self.name.startswith(("autograd::engine::", "torch::autograd::")))


@dataclass(frozen=True)
class Device:
    kind: str
    name: str
    lane: int
    start: int
    stop: int
    correlation: int = -1
    wait: int = 0
    is_transfer: bool = False

    @property
    def is_pageable_copy(self) -> bool:
        return self.kind == "memcpy" and (
            "Pageable" in self.name or ("DtoH" in self.name and "Pinned" not in self.name)
        )


@dataclass(frozen=True)
class Step:
    number: int
    lane: int
    start: int
    stop: int


@dataclass(frozen=True)
class Gloo:
    start: int
    stop: int
    wait: int = 0
    is_transfer: bool = False


def communication(running, time: int) -> str:
    """The line of a nanosecond in which only these calls run."""
    if any(time >= call.start + call.wait for call in running):
        return "comm.transfer"
    return "comm.bubble" if all(call.is_transfer for call in running) else "comm.wait"


@dataclass(frozen=True)
class Trace:
    host: tuple[Host, ...] = ()
    device: tuple[Device, ...] = ()
    steps: tuple[Step, ...] = ()
    gloo: tuple[Gloo, ...] = ()


@dataclass(frozen=True)
class Gap:
    start: int
    stop: int


def at(events, time):
    return [event for event in events if event.start <= time < event.stop]


class Oracle:
    """What the rules say of each nanosecond of a trace; `by_steps` as the window of steps, else the whole trace.

    Clocks of host and device may differ by `skew`.
    """

    def __init__(self, trace: Trace, *, by_steps: bool, skew: int = 0) -> None:
        self.trace = trace
        self.by_steps = by_steps
        self.skew = skew
        self.launch = {work: self._launch(work) for work in trace.device}
        latencies = [work.start - call.start for work, call in self.launch.items() if call]
        self.latency = max(0, min(latencies, default=0))
        self.training_lane = self._training_lane()
        self._edges = self._step_edges() if by_steps else []
        self._gaps: dict[int, Gap] = {}

    def lines(self) -> dict[int | None, Counter[str]]:
        """Nanoseconds by step and line; the step is None in a window of the whole trace."""
        found: dict[int | None, Counter[str]] = defaultdict(Counter)
        for time in self.window():
            found[self.step(time)][self.line(time)] += 1
        return dict(found)

    def window(self) -> list[int]:
        """Every nanosecond that is accounted for."""
        if self.by_steps:
            times = [edge for _, start, stop in self._edges for edge in (start, stop)]
            return [t for t in range(min(times, default=0), max(times, default=0)) if self.step(t) is not None]
        spans = self.trace.device or [e for e in self.trace.host if e.is_op and e.lane == self.training_lane]
        return list(range(min((e.start for e in spans), default=0), max((e.stop for e in spans), default=0)))

    def step(self, time: int) -> int | None:
        """The last step whose turn it is: it has begun, and so have all before it."""
        turn = -1
        while turn + 1 < len(self._edges) and self._edges[turn + 1][1] <= time:
            turn += 1
        if turn < 0:
            return None
        number, _, stop = self._edges[turn]
        if turn + 1 < len(self._edges):
            recorded = {step.number for step in self.trace.steps}
            if all(between in recorded for between in range(number, self._edges[turn + 1][0])):
                return number
        return number if time < stop else None

    def line(self, time: int) -> str:
        if not self.trace.device:
            return self._line_of_thread(time)
        works = at(self.trace.device, time)
        running = {work.kind for work in works}
        for kind, line in (("kernel", "compute"), ("comm", ""), ("memcpy", "copy"), ("memset", "copy")):
            if kind in running:
                return line or communication([work for work in works if work.kind == "comm"], time)
        return self._idle(time)

    def part_of_host(self, time: int) -> str:
        """Of a nanosecond on `idle.host`: what the host did."""
        call = self.launch[self.ender(self.gap(time))]
        if at(self.trace.gloo, time):
            return "host communication"
        calls = any(event.is_call for event in self._doing(call.lane, time))
        return "launch API" if calls or time >= call.start else "op dispatch"

    def allocation(self, time: int) -> str:
        """Of a nanosecond on `idle.alloc`: the outermost call of the launching thread that allocates."""
        calls = [event for event in self._doing(self.thread(time), time) if event.is_alloc]
        return min(calls, key=lambda event: (event.start, -event.stop)).name

    def annotation(self, time: int) -> str:
        """Of a nanosecond on `idle.python`: the innermost annotation of the thread that is asked, steps aside."""
        around = [
            (event.start, -event.stop, i, event.name)
            for i, event in enumerate(self._doing(self.thread(time), time))
            if event.kind == "annotation" and not event.name.startswith("ProfilerStep#")
        ]
        return max(around)[-1] if around else "no annotation"

    def thread(self, time: int) -> int | None:
        """The thread that explains an idle nanosecond: the launching one, on a CPU rank the training one."""
        return self.launch[self.ender(self.gap(time))].lane if self.trace.device else self.training_lane

    def computing(self, time: int) -> list[Host]:
        """Ops of the training thread that do not only wrap others.

        A function of the program, without a namespace, may wait for communication where there is any.
        """
        ops = [event for event in self._doing(self.training_lane, time) if event.is_op]
        wraps = {op for op in ops if op.is_wrapper or op.is_comm or op.is_compile}
        return [op for op in ops if op not in wraps and not op.name.startswith(PYTHON_AROUND_OPS)]

    def gap(self, time: int) -> Gap:
        """The idle stretch around a time; an event that takes no time ends one and begins another."""
        if time not in self._gaps:
            first, last = self._recorded()
            instants = {work.start for work in self.trace.device if work.start == work.stop}
            start, stop = time, time + 1
            while start > first and start not in instants and not at(self.trace.device, start - 1):
                start -= 1
            while stop < last and stop not in instants and not at(self.trace.device, stop):
                stop += 1
            self._gaps |= dict.fromkeys(range(start, stop), Gap(start, stop))
        return self._gaps[time]

    def ender(self, gap: Gap) -> Device | None:
        """Of the events that start where the gap stops the first launched; those without a launch come last."""
        candidates = [work for work in self.trace.device if work.start == gap.stop]
        launched = [work for work in candidates if self.launch[work]]
        if launched:
            return min(launched, key=lambda work: self.launch[work].start)
        queued = [work for work in candidates if self._queued(work, gap)]
        return next(iter((*queued, *candidates)), None)

    def blockers(self, gap: Gap, time: int) -> list[Host]:
        """Calls that had blocked when the gap began, with no launch from their return to this time.

        Others than the launching and the training thread block for themselves, and a call that had returned before the
        gap began waited for something else.
        """
        lanes = (self.launch[self.ender(gap)].lane, self.training_lane)
        launches = [call.start for call in self.launch.values() if call]
        return [
            call
            for call in self.trace.host
            if call.lane in lanes
            and call.start <= gap.start <= call.stop + self.skew
            and self.blocks(call)
            and not any(call.stop <= launch <= time for launch in launches)
        ]

    def blocks(self, call: Host) -> bool:
        """By its name; or it copied through pageable memory, and returned no earlier than the copy ended."""
        copies = [work for work, by in self.launch.items() if by == call and work.is_pageable_copy]
        return call.is_call and (call.name in BLOCKING or any(call.stop >= copy.stop for copy in copies))

    def _idle(self, time: int) -> str:
        gap = self.gap(time)
        ender = self.ender(gap)
        call = self.launch[ender] if ender else None
        if call is None:
            return "idle.dependency" if ender and self._queued(ender, gap) else "unexplained"
        if time >= call.start:
            arriving = call.start >= gap.start and time < call.start + self.latency
            waits_for_copy = ender.name.startswith("Memcpy DtoH")
            return "idle.host" if arriving or (time < call.stop and not waits_for_copy) else "idle.dependency"
        if time < min(event.start for event in self.trace.host):
            return "unexplained"
        if self._waits_for_data(time, call.lane, self.training_lane):
            return "idle.data"
        if self.blockers(gap, time):
            return "idle.sync"
        doing = self._doing(call.lane, time)
        for line, holds in (
            ("idle.alloc", any(event.is_alloc for event in doing)),
            ("idle.compile", any(event.is_compile for event in doing)),
            ("idle.host", any(event.is_call or event.is_op for event in doing)),
            ("idle.python", any(event.is_op and event.lane == call.lane for event in self.trace.host)),
        ):
            if holds:
                return line
        return "unexplained"

    def _line_of_thread(self, time: int) -> str:
        doing = self._doing(self.training_lane, time)
        ops = [event for event in doing if event.is_op]
        data, compiles = self._waits_for_data(time, self.training_lane), any(event.is_compile for event in doing)
        runs_none = data or compiles or any(op.is_comm for op in ops)
        shared = bool(at(self.trace.gloo, time))
        if not runs_none and any("::" in op.name or not shared for op in self.computing(time)):
            return "compute"
        if shared:
            return communication(at(self.trace.gloo, time), time)
        if data:
            return "idle.data"
        if compiles:
            return "idle.compile"
        return "idle.host" if ops else "idle.python"

    def _launch(self, work: Device) -> Host | None:
        """The first call with the event's correlation."""
        calls = [e for e in self.trace.host if e.is_call and e.correlation == work.correlation >= 0]
        return min(calls, key=lambda call: call.start, default=None)

    def _training_lane(self) -> int | None:
        lanes = [step.lane for step in self.trace.steps] or [event.lane for event in self.trace.host if event.is_op]
        return max(sorted(set(lanes)), key=lanes.count, default=None)

    def _recorded(self) -> tuple[int, int]:
        spans = (*self.trace.steps, *self.trace.device)
        return min(span.start for span in spans), max(span.stop for span in spans)

    def _step_edges(self) -> list[tuple[int, int, int]]:
        """Number, start and end of each step: on a device those of what was launched in it, else those of the host."""
        steps = sorted(self.trace.steps, key=lambda step: step.start)
        edges = []
        for step in steps:
            own = [work for work, call in self.launch.items() if call and step.start <= call.start < step.stop]
            if own:
                edges.append((step.number, min(work.start for work in own), max(work.stop for work in own)))
        return edges or [(step.number, step.start, step.stop) for step in steps]

    def _doing(self, lane: int | None, time: int) -> list[Host]:
        return [event for event in at(self.trace.host, time) if event.lane == lane]

    def _waits_for_data(self, time: int, *lanes: int | None) -> bool:
        return any(event.is_data and event.lane in lanes for event in at(self.trace.host, time))

    def _queued(self, ender: Device, gap: Gap) -> bool:
        """A stream runs its work in order: what follows the ender on its stream was launched after it."""
        following = [work for work in self.trace.device if work.lane == ender.lane and work.start >= ender.start]
        return any(self.launch[work] and self.launch[work].start < gap.start for work in following)
