"""The ledger of a tiny trace, one nanosecond at a time, from the JSON alone: slow, naive and independent of the
code it checks. Clocks must agree and no record may be lost."""

import json
from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

Event = dict[str, Any]


def load(text: str) -> dict[str, Any]:
    """Every decimal number becomes an integer of thousandths: microseconds become nanoseconds."""
    document: dict[str, Any] = json.loads(text, parse_float=lambda number: int(Decimal(number) * 1000))
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            event["end"] = event["ts"] + event["dur"]
    return document


def complete(document: dict[str, Any], *categories: str) -> list[Event]:
    return [e for e in document["traceEvents"] if e["ph"] == "X" and e["cat"] in categories]


def device_events(document: dict[str, Any]) -> list[Event]:
    return complete(document, "kernel", "gpu_memcpy", "gpu_memset")


def role(event: Event) -> str:
    if event["cat"] != "kernel":
        return "copy"
    return "comm" if event["name"].startswith("nccl") else "compute"


def last_arrivals(documents: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[int, int]]:
    """(rank, correlation) of a communication kernel -> when the last member arrived, and which rank that was."""
    meetings: dict[tuple[object, ...], list[tuple[int, int, int]]] = defaultdict(list)
    for rank, document in enumerate(documents):
        seen: Counter[tuple[int, int]] = Counter()
        for event in sorted(device_events(document), key=lambda e: int(e["ts"])):
            if role(event) != "comm":
                continue
            args = event["args"]
            key: tuple[object, ...] = (args["Process Group Name"], args["Seq"])
            if args["Collective name"] != "allreduce":
                pair = (args.get("Src Rank", rank), args.get("Dst Rank", rank))
                key = (*pair, seen[pair])
                seen[pair] += 1
            meetings[key].append((event["ts"], -rank, args["correlation"]))
    result = {}
    for arrivals in meetings.values():
        time, negative_rank, _ = max(arrivals)
        for _, member, correlation in arrivals:
            result[-member, correlation] = (time, -negative_rank)
    return result


def window(document: dict[str, Any]) -> tuple[int, int]:
    launches = {e["args"]["correlation"]: e for e in complete(document, "cuda_runtime")}
    steps = [e for e in complete(document, "user_annotation") if e["name"].startswith("ProfilerStep")]
    last_step = max(steps, key=lambda e: int(e["ts"]))
    events = device_events(document)
    in_last = [e for e in events if launches[e["args"]["correlation"]]["ts"] >= last_step["ts"]]
    return min(e["ts"] for e in events), max(e["end"] for e in in_last)


def ledger(documents: list[dict[str, Any]], rank: int) -> Counter[str]:
    """Nanoseconds by line; `comm.wait` is split into `comm.wait for {late rank}`."""
    document, arrivals = documents[rank], last_arrivals(documents)
    start, stop = window(document)
    events = device_events(document)
    lines = [_busy_line(time, events, arrivals, rank) for time in range(start, stop)]
    position = 0
    while position < len(lines):
        if lines[position] != "idle":
            position += 1
            continue
        end = position
        while lines[end] == "idle":
            end += 1
        lines[position:end] = _explained(document, start + position, start + end)
        position = end
    return Counter(lines)


def _busy_line(time: int, events: list[Event], arrivals: dict[tuple[int, int], tuple[int, int]], rank: int) -> str:
    running = [e for e in events if e["ts"] <= time < e["end"]]
    if any(role(e) == "compute" for e in running):
        return "compute"
    comm = [e for e in running if role(e) == "comm"]
    if any(arrivals[rank, e["args"]["correlation"]][0] <= time for e in comm):
        return "comm.transfer"
    waiting = [e for e in comm if e["args"]["Collective name"] == "allreduce"]
    if waiting:
        first = min(waiting, key=lambda e: (e["ts"], e["args"]["correlation"]))
        return f"comm.wait for {arrivals[rank, first['args']['correlation']][1]}"
    if comm:
        return "comm.bubble"
    return "copy" if running else "idle"


def _explained(document: dict[str, Any], start: int, stop: int) -> list[str]:
    calls = complete(document, "cuda_runtime")
    launches = {e["args"]["correlation"]: e for e in calls}
    device = device_events(document)
    enders = [launches[e["args"]["correlation"]] for e in device if e["ts"] == stop]
    launch = min(enders, key=lambda e: int(e["ts"]))
    if launch["ts"] < start:
        return ["idle.dependency"] * (stop - start)
    latency = min(e["ts"] - launches[e["args"]["correlation"]]["ts"] for e in device)
    refilled = _refilled(calls, {e["args"]["correlation"] for e in device}, start)
    own = [e for e in complete(document, "cpu_op", "cuda_runtime") if e["tid"] == launch["tid"]]
    loading = [e for e in complete(document, "user_annotation") if "DataLoader" in e["name"]]
    result = []
    for time in range(start, stop):
        inside = [e["name"] for e in own if e["ts"] <= time < e["end"]]
        if time >= launch["ts"]:
            result.append("idle.host" if time < launch["ts"] + latency else "idle.dependency")
        elif any(e["ts"] <= time < e["end"] for e in loading):
            result.append("idle.data")
        elif time < refilled:
            result.append("idle.sync")
        elif "cudaMalloc" in inside or "cudaFree" in inside:
            result.append("idle.alloc")
        else:
            result.append("idle.host" if inside else "idle.python")
    return result


def _refilled(calls: list[Event], launching: set[int], start: int) -> int:
    """When the queue got its first launch after a blocking call entered by `start`; 0 without such a call."""
    blocking = [e for e in calls if e["name"] == "cudaStreamSynchronize" and e["ts"] <= start]
    if not blocking:
        return 0
    returned = max(e["end"] for e in blocking)
    return min((e["ts"] for e in calls if e["args"]["correlation"] in launching and e["ts"] >= returned), default=0)
