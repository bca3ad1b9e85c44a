"""A host whose clock is wrong: its recordings, rewritten as that clock would have stamped them.

The ranks of two network namespaces read one clock. Everything that a rank records is a stamp of it, so that moving the
stamps is the same as moving the clock.
"""

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STAMPS = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")


@dataclass(frozen=True)
class WrongClock:
    """Ahead by `ahead` ns at `origin`, and by `ppm` more with every second."""

    ahead: int
    ppm: float
    origin: int

    def stamp(self, time: int) -> int:
        return time + self.ahead + round((time - self.origin) * self.ppm / 1e6)


def middle(traces: list[Path]) -> int:
    """The middle of what traces of one clock recorded, in ns."""
    times = []
    for path in traces:
        trace = json.loads(path.read_text())
        times += [_time(trace, event["ts"]) for event in trace["traceEvents"] if event["name"].startswith("gloo:")]
    return (min(times) + max(times)) // 2


def rewrite_trace(path: Path, clock: WrongClock) -> None:
    trace = json.loads(path.read_text())
    base = trace["baseTimeNanoseconds"]
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            start = _time(trace, event["ts"])
            stop = clock.stamp(start + round(event["dur"] * 1000))
            event["dur"] = (stop - clock.stamp(start)) / 1000
        event["ts"] = (clock.stamp(_time(trace, event["ts"])) - base) / 1000
    path.write_text(json.dumps(trace))


def rewrite_dump(path: Path, clock: WrongClock) -> None:
    dump = pickle.loads(path.read_bytes())
    for entry in dump["entries"]:
        entry |= {name: clock.stamp(entry[name]) for name in STAMPS if entry[name] is not None}
    path.write_bytes(pickle.dumps(dump, protocol=2))


def _time(trace: dict[str, Any], ts: float) -> int:
    return int(trace["baseTimeNanoseconds"]) + round(ts * 1000)
