"""A rank's host: one control flow over two threads that records ops and puts work on device streams.

Backward runs on the autograd thread while the main thread waits for it, so the host never does two things at once.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .declaration import Dtype
from .job import SyntheticJob
from .records import MAIN, DeviceEvent, HostEvent, RankRecord, Role, SyntheticCollective


class SyntheticHost:
    def __init__(self, rank: int, job: SyntheticJob, runnable: list[DeviceEvent]) -> None:
        self.record = RankRecord(rank)
        self.now = 0
        self.thread = MAIN
        self.step = 0
        self.last_on: dict[int, DeviceEvent] = {}
        self._costs = job.host
        self._kernel_gap = job.kernel_gap
        self._stacks = job.stacks
        self._runnable = runnable
        self._open_ops: list[HostEvent] = []
        self._external_id = 0
        self._correlation = 0
        self._frame_id = 0
        self._open_frames: list[int] = []

    def begin(
        self,
        name: str,
        *,
        dims: tuple[int, int, int] | None = None,
        shape: tuple[int, ...] = (),
        dtype: Dtype = "bfloat16",
        sequence: int = -1,
        backward: bool = False,
        collective: SyntheticCollective | None = None,
    ) -> None:
        """Open an op; ops nest."""
        self._external_id += 1
        event = HostEvent(
            "cpu_op",
            name,
            self.thread,
            self.now,
            external_id=self._external_id,
            dims=dims,
            shape=shape,
            dtype=dtype,
            sequence=sequence,
            backward=backward,
            collective=collective,
        )
        self._open_ops.append(event)
        self.record.host_events.append(event)

    def end(self) -> None:
        event = self._open_ops.pop()
        event.stop = self.now
        if not self._open_ops:
            self.record.op_spans[self.thread].append((event.start, event.stop))
            self.now += self._costs.between_ops

    @contextmanager
    def frame(self, name: str) -> Iterator[None]:
        """Record a Python function, if stacks are recorded: `file.py(line): function`."""
        if not self._stacks:
            yield
            return
        self._frame_id += 1
        parent = self._open_frames[-1] if self._open_frames else 0
        event = HostEvent("python_function", name, self.thread, self.now, external_id=self._frame_id, parent=parent)
        self.record.host_events.append(event)
        self._open_frames.append(self._frame_id)
        yield
        self._open_frames.pop()
        event.stop = self.now

    def annotate(self, name: str, start: int) -> None:
        self._external_id += 1
        self.record.host_events.append(
            HostEvent("user_annotation", name, self.thread, start, self.now, external_id=self._external_id)
        )

    def call(self, name: str, cost: int) -> HostEvent:
        """Record a runtime call; the caller may move its end later if it blocks."""
        self._correlation += 1
        enclosing = self._open_ops[-1].external_id if self._open_ops else 0
        event = HostEvent(
            "cuda_runtime",
            name,
            self.thread,
            self.now,
            self.now + cost,
            external_id=enclosing,
            correlation=self._correlation,
        )
        self.record.host_events.append(event)
        self.now += cost
        return event

    def extend(self, call: HostEvent, until: int) -> None:
        call.stop = self.now = until

    def enqueue(
        self,
        call: HostEvent,
        needs: Iterable[DeviceEvent],
        *,
        role: Role,
        category: str,
        name: str,
        stream: int,
        duration: int,
        size: int = 0,
        collective: SyntheticCollective | None = None,
    ) -> DeviceEvent:
        """Queue device work launched by `call`: after the stream's last event and after `needs`."""
        call.launches = True
        self.record.launch_starts.append(call.start)
        event = DeviceEvent(
            role,
            category,
            name,
            stream,
            duration,
            call,
            self.record.rank,
            self.step,
            ready=call.start + self._costs.launch_latency,
            bytes=size,
            collective=collective,
        )
        previous = self.last_on.get(stream)
        for need in (*needs, previous) if previous is not None else needs:
            if need.stop < 0:
                event.pending += 1
                need.followers.append(event)
            else:
                event.ready = max(event.ready, need.stop + (self._kernel_gap if need.stream == stream else 0))
        self.last_on[stream] = event
        self.record.device_events.append(event)
        if not event.pending:
            self._runnable.append(event)
        return event
