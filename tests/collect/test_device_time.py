"""Device time by events, on a device that the test drives: nothing may ever wait for it."""

from __future__ import annotations

from lostflops.collect.device_time import DeviceTime
from lostflops.collect.graph_captures import GraphCaptures
from lostflops.collect.steps import BACKWARD, FORWARD


class Device:
    """A queue: an event is over once the device has come past it. Times are ms."""

    def __init__(self) -> None:
        self.queued = 0.0
        self.reached = 0.0

    def event(self) -> Event:
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self._device = device
        self.time = -1.0

    def record(self) -> None:
        self.time = self._device.queued

    def query(self) -> bool:
        return self._device.reached >= self.time

    def elapsed_time(self, other: Event) -> float:
        assert self.query(), "an unfinished event has no time"
        assert other.query(), "an unfinished event has no time"
        return other.time - self.time

    def synchronize(self) -> None:
        raise AssertionError("never")


def work(device: Device, time: DeviceTime, step: int) -> None:
    time.phase(FORWARD)
    device.queued += 2
    time.phase(-1)
    device.queued += 1
    time.phase(BACKWARD)
    device.queued += 4
    time.phase(-1)
    time.step(step + 1)


def test_steps_are_told_once_the_device_has_passed_them() -> None:
    device = Device()
    time = DeviceTime(device.event)
    for step in range(4):
        work(device, time, step)
    assert time.poll() == [], "the device has not begun"
    device.reached = 13.9
    assert time.poll() == [], "step 0 began before we looked, and step 1 is not over"
    device.reached = 14
    told = {"kind": "device_step", "time": 7_000_000, "forward": 2_000_000, "backward": 4_000_000}
    assert time.poll() == [told | {"step": 1}]
    device.reached = 100
    assert time.poll() == [told | {"step": 2}, told | {"step": 3}]


def test_a_device_that_never_answers_costs_bounded_memory_and_leaves_a_gap() -> None:
    device = Device()
    time = DeviceTime(device.event)
    for step in range(1000):
        work(device, time, step)
    assert time.lost > 0
    device.reached = device.queued
    found = time.poll()
    assert len(found) < 200
    assert all(record["time"] == 7_000_000 for record in found), "no step is told that has a hole"


def test_no_event_gets_into_a_graph_that_is_captured() -> None:
    """And the step of the capture is not told, because part of it is not known."""

    class Graph:
        def capture_begin(self) -> None: ...
        def capture_end(self) -> None: ...

    device, captures = Device(), GraphCaptures()
    captures.watch(Graph)
    made: list[Event] = []

    def event() -> Event:
        made.append(device.event())
        return made[-1]

    time = DeviceTime(event, captures)
    for step in range(4):
        if step == 2:
            before = len(made)
            graph = Graph()
            graph.capture_begin()
            work(device, time, step)
            graph.capture_end()
            assert len(made) == before
        else:
            work(device, time, step)
    device.reached = device.queued
    assert 2 not in {record["step"] for record in time.poll()}
