"""Kinds of events, as table `events` names them, and the codes of their column."""

from typing import Final

KINDS: Final = (
    "op",
    "annotation",
    "python",
    "runtime",
    "overhead",
    "span",
    "host_comm",
    "other",
    "kernel",
    "memcpy",
    "memset",
    "sync",
    "device_annotation",
    "comm",
    "module",
)
KIND_CODE: Final = {kind: code for code, kind in enumerate(KINDS)}
DEVICE_WORK: Final = tuple(KIND_CODE[kind] for kind in ("kernel", "memcpy", "memset", "comm"))
KERNELS: Final = tuple(KIND_CODE[kind] for kind in ("kernel", "comm"))
