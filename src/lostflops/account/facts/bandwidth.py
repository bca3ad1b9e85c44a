"""Bytes on a link per byte of a collective, as in NCCL's busbw."""

from typing import Final

_SHARDED: Final = ("all_gather", "reduce_scatter", "all_to_all")


def bus_factor(op: str, size: int | None) -> float | None:
    """Return the bytes on a link per byte of algbw, as in NCCL's busbw, for a group of `size` ranks; None if unknown,
    and for a group of one rank, which sends nothing.

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 4), bus_factor("broadcast", 8), bus_factor("barrier", 8)
    (1.75, 0.75, 1.0, None)
    >>> bus_factor("all_reduce", 1)
    """
    if op in {"broadcast", "reduce", "send", "recv", "send_recv"}:
        return 1.0
    if not size or size == 1:
        return None
    if op == "all_reduce":
        return 2 * (size - 1) / size
    return (size - 1) / size if op in _SHARDED else None
