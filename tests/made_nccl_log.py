"""Small logs of NCCL, in the forms of several versions."""

from __future__ import annotations

from collections.abc import Sequence

COMM_ID = "0x94343f5a50e0fc8e"


def start(rank: int, size: int, hosts: int = 1, comm: str = COMM_ID, address: int = 0xA000) -> list[str]:
    """Lines of one rank's start, as version 2.18 writes them, without its connections."""
    device, place = rank % (size // hosts), prefix(rank, size, hosts)
    said = f"comm 0x{address + rank:x} rank {rank} nranks {size} cudaDev {device} nvmlDev {device} "
    said += f"busId {device + 16:x}000"
    return [
        f"{place} {said} commId {comm} - Init START",
        *(f"{place} Channel {ring:02}/02 :    {'   '.join(map(str, range(size)))}" for ring in (0, 1) if rank == 0),
        f"{place} Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1",
        f"{place} Connected all rings",
        f"{place} threadThresholds 8/8/64 | 16/8/64 | 512 | 512",
        f"{place} 2 coll channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer",
        f"{place} {said} commId {comm} - Init COMPLETE",
    ]


def prefix(rank: int, size: int, hosts: int = 1, thread: int = 500) -> str:
    per_host = size // hosts
    return f"node{rank // per_host}:{1000 + rank}:{thread} [{rank % per_host}] NCCL INFO"


def log(
    size: int = 2,
    hosts: int = 1,
    inside: str = "P2P/IPC/read",
    across: str = "NET/IB/0/GDRDMA",
    more: Sequence[str] = (),
) -> str:
    """Return the merged log of a ring."""
    per_host = size // hosts
    lines = ["NCCL version 2.18.3+cuda12.2"]
    for rank in range(size):
        place, after = prefix(rank, size, hosts), (rank + 1) % size
        begin, *rest = start(rank, size, hosts)
        transport = f"via {inside}" if rank // per_host == after // per_host else f"[send] via {across}"
        links = [
            f"{place} Channel {c:02}/0 : {rank}[{rank % per_host}] -> {after}[{after % per_host}] {transport}"
            for c in (0, 1)
        ]
        lines += [f"{place} Using network IB", begin, *links, *rest]
    return "\n".join([*lines, *more, ""])
