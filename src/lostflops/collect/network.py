"""Traffic of the host's interfaces, and of this process's own TCP connections, as counted by the Linux kernel.

Read on the collector's thread: often at first and in windows, else every ten seconds. All counters grow only. On other
systems nothing is recorded.
"""

from __future__ import annotations

import ctypes
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from operator import le
from pathlib import Path
from typing import Any, Final

_COUNTERS: Final = Path("/proc/net/dev")
_FILES: Final = Path("/proc/self/fd")
_MOST_INTERFACES: Final = 16
_MOST_FILES: Final = 2_000
_MOST_CONNECTIONS: Final = 200
"""With more, the traffic of the process is not recorded: to read it would take too long."""
_OFTEN: Final = 1_000_000_000
_OFTEN_UNTIL: Final = 60_000_000_000
_SELDOM: Final = 10_000_000_000
_RECEIVED: Final = 128
"""Place in `struct tcp_info` of the bytes that were received."""
_SENT: Final = 200
"""Place of the bytes that were sent, repetitions included."""
_RESENT: Final = 208
"""Place of the bytes that were sent again."""
_INFO_BYTES: Final = 216
_ADDRESSES: Final = {
    struct.pack("=i", socket.AF_INET): slice(4, 8),
    struct.pack("=i", socket.AF_INET6): slice(8, 24),
}
"""Places of the address in `struct sockaddr`, by family."""
_ADDRESS_BYTES: Final = 28
_TCP: Final = struct.pack("=i", socket.IPPROTO_TCP)
_SOCKET: Final = re.compile(r"socket:\[(\d{1,20})\]")

Traffic = tuple[int, int, int]
"""Bytes received, sent, and sent again."""


class NetworkCounters:
    """The counters of a process; with `has_interfaces` also those of its host, which one rank of a host records."""

    def __init__(self, put: Callable[[dict[str, Any]], None], wall: Callable[[], int], *, has_interfaces: bool) -> None:
        self._put, self._wall, self._has_interfaces = put, wall, has_interfaces
        self._began = time.monotonic_ns()
        self._next = self._began
        self._open: dict[int, tuple[bool, Traffic]] = {}
        """By inode of a socket."""
        self._closed: dict[bool, Traffic] = {True: (0, 0, 0), False: (0, 0, 0)}
        self._has_connections = True
        self._is_possible = _COUNTERS.exists() and hasattr(socket, "TCP_INFO")

    def look(self, *, is_profiling: bool) -> None:
        """Record the counters if it is time to."""
        now = time.monotonic_ns()
        if not self._is_possible or (now < self._next and not is_profiling):
            return
        self._next = now + (_OFTEN if now - self._began < _OFTEN_UNTIL else _SELDOM)
        self.record()

    def record(self) -> None:
        """Record the counters now; if that fails, never again."""
        if not self._is_possible:
            return
        try:
            self._read()
        except (OSError, ValueError, struct.error) as error:
            self._is_possible = False
            self._put({"kind": "note", "what": "network_missing", "count": 1, "reason": type(error).__name__})

    def _read(self) -> None:
        interfaces = _read_interfaces() if self._has_interfaces else []
        is_known = self._has_connections and self._read_connections()
        own = [self._sum(is_local) for is_local in (True, False)] if is_known else []
        self._put({"kind": "network", "time": self._wall(), "interfaces": interfaces, "own": own})

    def _sum(self, is_local: bool) -> list[int]:
        values = [traffic for of, traffic in self._open.values() if of == is_local]
        return [sum(column) for column in zip(self._closed[is_local], *values, strict=True)]

    def _read_connections(self) -> bool:
        """Read the counters of all connections; return whether that is possible. A connection that was closed keeps
        what it had at the last look."""
        found: dict[int, tuple[bool, Traffic]] = {}
        for number, (inode, is_local, traffic) in enumerate(_connections()):
            if number >= _MOST_CONNECTIONS:
                self._has_connections = False
                return False
            found[inode] = is_local, traffic
        for inode, (is_local, traffic) in self._open.items():
            if inode in found and all(map(le, traffic, found[inode][1])):
                continue  # otherwise it was closed; another may have its number
            received, sent, resent = self._closed[is_local]
            self._closed[is_local] = received + traffic[0], sent + traffic[1], resent + traffic[2]
        self._open = found
        return True


def _read_interfaces() -> list[tuple[str, int, int]]:
    """Return name, bytes received and bytes sent of the busiest interfaces, the busiest first."""
    found: list[tuple[str, int, int]] = []
    for line in _COUNTERS.read_text().splitlines()[2:]:
        name, _, counters = line.partition(":")
        values = counters.split()
        if len(values) > 8:
            found.append((name.strip(), int(values[0]), int(values[8])))
    return sorted(found, key=lambda row: -row[1] - row[2])[:_MOST_INTERFACES]


def _connections() -> Iterator[tuple[int, bool, Traffic]]:
    """Yield inode, whether it stays on this host, and traffic of each TCP connection of this process.

    The kernel is asked about the program's own file numbers. To close a copy of one releases the program's locks on
    that file (fcntl), and a socket object would make the connection non-blocking if the program set a default timeout.
    """
    for path in islice(_FILES.iterdir(), _MOST_FILES):
        inode = _find_inode(path)
        if inode is None or (found := _read_connection(int(path.name))) is None:
            continue
        if _find_inode(path) == inode:  # else the number became that of another file meanwhile
            yield inode, *found


def _find_inode(path: Path) -> int | None:
    """Return the inode of a socket; None if the file is no socket, or was closed."""
    try:
        found = _SOCKET.fullmatch(str(path.readlink()))
    except OSError:
        return None
    return int(found[1]) if found else None


def _read_connection(file: int) -> tuple[bool, Traffic] | None:
    """Return whether a connection stays on this host, and its traffic; None if it is no TCP connection."""
    family = _get_option(file, socket.SOL_SOCKET, socket.SO_DOMAIN)
    protocol = _get_option(file, socket.SOL_SOCKET, socket.SO_PROTOCOL)
    if family not in _ADDRESSES or protocol != _TCP:
        return None
    here, there = (_read_address(name, file, _ADDRESSES[family]) for name in ("getsockname", "getpeername"))
    found = _get_option(file, socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if not here or not there or found is None or len(found) < _INFO_BYTES:  # not connected, or a kernel before 4.19
        return None
    received, sent, resent = (struct.unpack_from("=Q", found, place)[0] for place in (_RECEIVED, _SENT, _RESENT))
    return here == there, (received, sent, resent)


@cache
def _load_libc() -> ctypes.PyDLL:
    return ctypes.PyDLL(None)  # calls that never wait, so they need not release the GIL


def _get_option(file: int, level: int, option: int, size: int = 4) -> bytes | None:
    buffer, length = ctypes.create_string_buffer(size), ctypes.c_uint32(size)
    failed = _load_libc().getsockopt(file, level, option, buffer, ctypes.byref(length))
    return None if failed else buffer.raw[: length.value]


def _read_address(call: str, file: int, place: slice) -> bytes | None:
    """Return the address of one end; None if the connection lacks it."""
    buffer, length = ctypes.create_string_buffer(_ADDRESS_BYTES), ctypes.c_uint32(_ADDRESS_BYTES)
    failed = getattr(_load_libc(), call)(file, buffer, ctypes.byref(length))
    return None if failed else buffer.raw[place]
