"""Wall clocks of hosts, exchanged through the job's store, so that offsets between hosts have bounds.

Rank 0 sets a key with its time; the first rank of each other host waits for it, notes when it arrived and sets its own
key, for which rank 0 waits. A reading was made before it arrived: each is a bound, and two opposite ones enclose the
offset. The exchange happens after a window, on its own thread and its own connection: a store that is gone or a host
that died costs that thread a few seconds and adds a note to the run. torch prints a warning when a store does not
answer, so keys are polled, and only as long as a second, silent connection shows that the store is there.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any, Final

_PAUSE: Final = 1.0
"""Seconds until rank 0 begins: windows of other ranks end a little earlier or later, and a rank that is already waiting
measures best."""
_PATIENCE: Final = 10.0
_LAST_WAIT: Final = 0.2
_POLL: Final = 0.002
_EVERY_NS: Final = 60_000_000_000
_KEY: Final = "lostflops/clock"


class ClockExchange:
    def __init__(self, recorder: Any, local_world_size: int | None = None) -> None:
        self._recorder = recorder
        found = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
        self._local_world_size = local_world_size or found or recorder.world_size
        self._last = -_EVERY_NS
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def begin(self, window: int, store: Any = None) -> None:
        """Record both of our own clocks after a window, then, if due, those of other hosts on a separate thread."""
        now = time.monotonic_ns()
        self._recorder.put({"kind": "clock", "wall": time.time_ns(), "monotonic": now})
        if not self._is_due(now):
            return
        self._last = now
        self._thread = threading.Thread(target=self._run, args=(window, store), name="lostflops-clock", daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    def close(self) -> None:
        """Stop at exit: the store may go away at any time, and no thread should be inside it then."""
        self._over.set()
        self.join(_LAST_WAIT)

    def _is_due(self, now: int) -> bool:
        recorder = self._recorder
        has_hosts = 0 < self._local_world_size < recorder.world_size
        is_first = has_hosts and recorder.rank % self._local_world_size == 0
        is_busy = self._thread is not None and self._thread.is_alive()
        return is_first and not is_busy and now - self._last >= _EVERY_NS

    def _run(self, window: int, store: Any) -> None:
        try:
            own = _connection(store)
            if own is not None:
                with _probe(own) as probe:
                    self._exchange(own, window, probe)
        except Exception as error:  # noqa: BLE001 - the store's errors are of many kinds
            self._recorder.note("clock_exchange", f"the job's store did not answer: {type(error).__name__}")

    def _exchange(self, store: Any, window: int, probe: socket.socket) -> None:
        recorder, size = self._recorder, self._local_world_size
        prefix = f"{_KEY}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{window}"
        if recorder.rank == 0:
            self._over.wait(_PAUSE)
            self._send(store, f"{prefix}/0", probe)
            deadline = time.monotonic() + _PATIENCE
            for peer in range(size, recorder.world_size, size):
                self._receive(store, f"{prefix}/{peer}", peer, probe, deadline)
        elif self._receive(store, f"{prefix}/0", 0, probe, time.monotonic() + _PATIENCE):
            self._over.wait(min(recorder.rank // size * _POLL, _PATIENCE / 2))
            self._send(store, f"{prefix}/{recorder.rank}", probe)

    def _send(self, store: Any, key: str, probe: socket.socket) -> None:
        if self._is_there(probe):
            store.set(key, str(self._recorder.wall()))

    def _receive(self, store: Any, key: str, peer: int, probe: socket.socket, deadline: float) -> bool:
        while not (self._is_there(probe) and store.check([key])):
            if time.monotonic() > deadline or not self._is_there(probe):
                self._recorder.note("clock_exchange", f"rank {peer} sent no clock reading")
                return False
            time.sleep(_POLL)
        now = time.monotonic_ns()
        record = {"kind": "clock", "wall": self._recorder.wall(now), "monotonic": now}
        self._recorder.put({**record, "peer": peer, "peer_wall": int(store.get(key))})
        return True

    def _is_there(self, probe: socket.socket) -> bool:
        if self._over.is_set():
            return False
        try:
            return probe.recv(1) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


def _connection(given: Any) -> Any:
    """Return a connection of our own to the job's store; None if there is no store or it cannot be cloned."""
    import torch.distributed as dist

    store = given
    if store is None:
        if not dist.is_available() or not dist.is_initialized():
            return None
        store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - there is no other way to it
    clone = getattr(store, "clone", None)
    return clone() if clone is not None and _address(store) is not None else None


def _address(store: Any) -> tuple[str, int] | None:
    """Return host and port of a store that is a server; None for any other store."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return (store.host, store.port) if hasattr(store, "port") else None


def _probe(store: Any) -> socket.socket:
    """Return a connection that sends nothing, and ends when the store does."""
    address = _address(store)
    assert address is not None
    probe = socket.create_connection(address, timeout=5)
    probe.setblocking(False)
    return probe
