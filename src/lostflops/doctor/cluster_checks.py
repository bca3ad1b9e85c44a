"""Judge what all ranks measured before a job: pass, warn or fail, with the ranks at fault.

A rank is compared with the median of its peers, the other ranks with the same device, and with the peak of its device.
The reason of each limit is in docs/how-to/check-a-cluster.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

from lostflops.account.facts.devices import find_device
from lostflops.core.units import format_bytes, format_ns, format_share, pluralise
from lostflops.doctor.host_checks import folder, space
from lostflops.doctor.machine import Disk, Machine

ClusterState = Literal["pass", "warn", "fail"]
_STATES: Final[tuple[ClusterState, ...]] = ("pass", "warn", "fail")
SLOWER: Final = 0.05
"""Difference from peers from which SuperBench, by its default rule, calls a machine defective."""
_LEAST_OF_PEAK: Final = 0.5
"""Healthy devices reach more: the lowest in the table of the ML engineering book is 60%, of an MI300X."""
_BROKEN: Final = 0.3
"""Half of the lowest published share: what a device does whose clocks are halved, as hardware slowdown does."""
_CLOCK_STEP_NS: Final = 128_000_000
"""Offset from which a time server steps a clock (RFC 5905, STEPT): a synchronised clock is never off by more."""
_DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_MOST_NAMED: Final = 8
_SAME: Final = (
    ("torch", "fail", "install the same version of PyTorch everywhere: ranks may otherwise hang or disagree"),
    ("nccl", "fail", "install the same NCCL everywhere: it refuses to connect different versions"),
    ("driver", "warn", "install the same driver everywhere: a rank may otherwise be slower"),
    ("python", "warn", "use one environment or container image on all hosts"),
    ("lostflops", "warn", "install the same version of Lostflops everywhere"),
    ("device", "warn", "give the job hosts of one kind: it runs at the pace of the slowest device"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCheck:
    name: str
    state: ClusterState
    finding: str
    where: str = ""
    """Ranks and hosts at fault."""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankHealth:
    """What one rank measured; rates in TFLOPS or GB/s."""

    rank: int
    host: str
    device: str | None
    host_share: float
    """Part of the job's ranks that is lost if the host is left out; on a single host, if the rank is."""
    tflops: tuple[float, float]
    """Median and fastest batch."""
    memory_gbs: tuple[float, float]
    inside_gbs: tuple[float, float] | None
    """Of its best pair; None without a partner in the host."""
    across_gbs: tuple[float, float] | None
    tflops_of_peak: float | None
    memory_of_peak: float | None

    @property
    def place(self) -> str:
        return f"rank {self.rank} ({self.host})"


def read_ranks(rows: Sequence[Mapping[str, Any]]) -> list[RankHealth]:
    """Return what each rank measured; hosts with the same name are numbered."""
    counts = Counter(row["host_number"] for row in rows)
    numbers: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["host_number"] not in numbers[row["host"]]:
            numbers[row["host"]].append(row["host_number"])
    found = []
    for row in rows:
        alike = numbers[row["host"]]
        host = row["host"] if len(alike) == 1 else f"{row['host']} #{alike.index(row['host_number']) + 1}"
        matmul, memory = row["matmul"], row["memory"]
        tflops = _rates(2 * matmul["m"] * matmul["n"] * matmul["k"] / 1e3, matmul["ns"])
        copied = _rates(memory["bytes"], memory["ns"])
        known = find_device(row["device"]) if row["device"] else None
        peak = known.peaks.get(_DTYPES.get(matmul["dtype"], "")) if known else None
        found.append(
            RankHealth(
                rank=row["rank"],
                host=host,
                device=row["device"],
                host_share=(counts[row["host_number"]] if len(counts) > 1 else 1) / len(rows),
                tflops=tflops,
                memory_gbs=copied,
                inside_gbs=_best_pair(row["links"]["inside"]),
                across_gbs=_best_pair(row["links"]["across"]),
                tflops_of_peak=tflops[0] / peak if peak else None,
                memory_of_peak=copied[0] / known.memory_gbs if known and known.memory_gbs else None,
            )
        )
    return found


def _rates(work: float, ns: Sequence[int]) -> tuple[float, float]:
    """Return the median and the highest rate of work (in thousands of FLOPs, or bytes) per ns."""
    return work / max(median(ns), 1), work / max(min(ns), 1)


def _best_pair(pairs: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    return max((_rates(pair["bytes"], pair["ns"]) for pair in pairs), default=None)


def cluster_checks(
    rows: Sequence[Mapping[str, Any]],
    collectives: Sequence[Mapping[str, Any]],
    limits: Mapping[tuple[str, str], float],
) -> list[ClusterCheck]:
    """Return all checks; `limits` has the longest expected time in ns by operation and level."""
    ranks = read_ranks(rows)
    return [
        *_versions(rows, ranks),
        *_disks(rows, ranks),
        _clocks(rows, ranks),
        _compare("matmul", "TFLOPS", ranks, [rank.tflops for rank in ranks], [rank.tflops_of_peak for rank in ranks]),
        _compare("memory", "GB/s", ranks, [rank.memory_gbs for rank in ranks], [rank.memory_of_peak for rank in ranks]),
        *_links(ranks),
        *_collectives(collectives, limits),
    ]


def _compare(
    name: str,
    unit: str,
    ranks: Sequence[RankHealth],
    rates: Sequence[tuple[float, float] | None],
    of_peak: Sequence[float | None],
) -> ClusterCheck:
    """Compare each rank with its peers, and with its peak if that is known."""
    worst: ClusterState = "pass"
    faults: list[tuple[float, str]] = []
    for rank, rate, share in zip(ranks, rates, of_peak, strict=True):
        if rate is None:
            continue
        peers = [
            other[0]
            for peer, other in zip(ranks, rates, strict=True)
            if other is not None and peer.rank != rank.rank and peer.device == rank.device
        ]
        state = max(_against_peers(rank, rate, peers), _against_peak(share), key=_STATES.index)
        if state != "pass":
            worst = max(worst, state, key=_STATES.index)
            against = f"; peers {median(peers):,.3g}" if peers else ""
            peak = f", {format_share(share)} of peak" if share is not None else ""
            faults.append((rate[0], f"{rank.place}: {rate[0]:,.3g} {unit}{peak}{against}"))
    known = [rate[0] for rate in rates if rate is not None]
    shares = [share for share in of_peak if share is not None]
    finding = f"median {median(known):,.3g} {unit}, lowest {min(known):,.3g}"
    finding += f"; {format_share(min(shares))} of peak or more" if shares else ""
    return ClusterCheck(
        name=name,
        state=worst,
        finding=finding,
        where=_name([text for _, text in sorted(faults)]),
        remedy=_REMEDIES[name] if worst != "pass" else "",
    )


_REMEDIES: Final = {
    "matmul": "look for other processes, thermal or power limits (nvidia-smi -q -d PERFORMANCE), and CPU affinity; "
    "if it stays slow, leave the host out",
    "memory": "look for other processes, ECC errors and memory clocks (nvidia-smi -q -d ECC,CLOCK); if it stays slow, "
    "leave the host out",
    "links inside hosts": "compare nvidia-smi topo -m and nvlink --status with another host",
    "links across hosts": "compare the rate of the host's adapters (ibstat, ethtool), its cables and its switch port",
}


def _against_peers(rank: RankHealth, rate: tuple[float, float], peers: Sequence[float]) -> ClusterState:
    """Judge a rank by its median; even its fastest batch must be slower than its peers, or it is noise."""
    if not peers:
        return "pass"
    usual = median(peers)
    slower = usual / rate[0] - 1
    if slower < SLOWER or rate[1] >= usual:
        return "pass"
    # The job runs at the pace of this rank. Without its host it has fewer ranks, at full pace.
    return "fail" if 1 / (1 + slower) < 1 - rank.host_share else "warn"


def _against_peak(share: float | None) -> ClusterState:
    if share is None or share >= _LEAST_OF_PEAK:
        return "pass"
    return "fail" if share < _BROKEN else "warn"


def _links(ranks: Sequence[RankHealth]) -> Iterator[ClusterCheck]:
    for name, rates in (
        ("links inside hosts", [rank.inside_gbs for rank in ranks]),
        ("links across hosts", [rank.across_gbs for rank in ranks]),
    ):
        if any(rate is not None for rate in rates):
            yield _compare(name, "GB/s", ranks, rates, [None] * len(ranks))


def _versions(rows: Sequence[Mapping[str, Any]], ranks: Sequence[RankHealth]) -> Iterator[ClusterCheck]:
    found = []
    for name, state, remedy in _SAME:
        seen = Counter(row[name] for row in rows)
        if len(seen) == 1:
            continue
        (usual, most), *others = seen.most_common()
        is_tie = bool(others) and others[0][1] == most
        odd = [
            f"{rank.place}: {row[name] or 'none'}"
            for row, rank in zip(rows, ranks, strict=True)
            if is_tie or row[name] != usual
        ]
        finding = f"{len(seen)} different" if is_tie else f"most ranks have {usual or 'none'}"
        found.append(
            ClusterCheck(
                name=f"same {name}",
                state="fail" if state == "fail" else "warn",
                finding=finding,
                where=_name(odd),
                remedy=remedy,
            )
        )
    if not found:
        first = rows[0]
        said = ", ".join(f"{name} {first[name]}" for name, *_ in _SAME[:4] if first[name])
        yield ClusterCheck(name="versions", state="pass", finding=f"{said} on {pluralise(len(rows), 'rank')}")
    yield from found


def _disks(rows: Sequence[Mapping[str, Any]], ranks: Sequence[RankHealth]) -> Iterator[ClusterCheck]:
    """Check the disk of each host, by its first rank."""
    worst: ClusterState = "pass"
    faults, remedies, free = [], [], list[int]()
    for row, rank in zip(rows, ranks, strict=True):
        if any(other["host_number"] == row["host_number"] for other in rows[: row["rank"]]):
            continue
        disk = Disk(**row["disk"])
        free += [] if disk.free_bytes is None else [disk.free_bytes]
        for check in (folder, space):
            judged = check(Machine(interpreter=None, interpreter_error="", disk=disk))
            if judged.state != "ok":
                worst = max(worst, "fail" if judged.is_needed else "warn", key=_STATES.index)
                faults.append(f"{rank.place}: {judged.finding}, {judged.consequence}")
                remedies.append(judged.remedy)
    finding = f"at least {format_bytes(min(free))} free on each host" if free else "free space unknown"
    yield ClusterCheck(
        name="disk", state=worst, finding=finding, where=_name(faults), remedy=next(filter(None, remedies), "")
    )


def _clocks(rows: Sequence[Mapping[str, Any]], ranks: Sequence[RankHealth]) -> ClusterCheck:
    clocks = {
        row["host_number"]: (rank, row["clock"])
        for row, rank in zip(rows, ranks, strict=True)
        if row["clock"] is not None
    }
    if not clocks:
        return ClusterCheck(name="clocks", state="pass", finding="one host, one clock")
    far = [
        f"{rank.place}: {format_ns(abs(clock['offset']))} {'ahead of' if clock['offset'] > 0 else 'behind'} rank 0"
        for rank, clock in clocks.values()
        if abs(clock["offset"]) - clock["error"] > _CLOCK_STEP_NS
    ]
    largest = max(abs(clock["offset"]) for _, clock in clocks.values())
    return ClusterCheck(
        name="clocks",
        state="warn" if far else "pass",
        finding=f"at most {format_ns(largest)} apart from rank 0",
        where=_name(far),
        remedy="run chrony or ntpd: logs and traces of hosts cannot be compared" if far else "",
    )


def _collectives(rows: Sequence[Mapping[str, Any]], limits: Mapping[tuple[str, str], float]) -> Iterator[ClusterCheck]:
    for row in rows:
        ns, limit = median(row["ns"]), limits.get((row["op"], row["level"]))
        is_slow = limit is not None and ns > limit
        finding = f"{format_bytes(row['bytes'])} in {format_ns(round(ns))}, {row['bytes'] / max(ns, 1):,.3g} GB/s"
        finding += "" if limit is None else f"; NCCL's model expects at most {format_ns(round(limit))}"
        yield ClusterCheck(
            name=f"{row['op']} ({row['level']})",
            state="fail" if is_slow else "pass",
            finding=finding,
            where=f"{row['ranks']} ranks on {pluralise(row['hosts'], 'host')}" if is_slow else "",
            remedy="see the links above, and lostflops comm with a log of NCCL" if is_slow else "",
        )


def _name(faults: Sequence[str]) -> str:
    more = f"; and {len(faults) - _MOST_NAMED} more" if len(faults) > _MOST_NAMED else ""
    return "; ".join(faults[:_MOST_NAMED]) + more
