"""Work on a Ray cluster: a task for each item, no more of them waiting than the cluster soon takes.

Ray runs whatever it is sent, by any sender, and listens on all addresses of a machine. So a cluster that others can
reach must require a token, as a cluster that is started here does.
"""

from __future__ import annotations

import ipaddress
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from lostflops._version import __version__
from lostflops.core.errors import BrokenSource, UsageError
from lostflops.store.spread.work import OnRead, R, T, Work, WorkAnswer, carried_out, encode_order, result_of

LOOPBACK: Final = "127.0.0.1"
_MODE: Final = "RAY_AUTH_MODE"
_AHEAD: Final = 2
"""Items at the cluster for each of its cores: the next is there when one is done."""
_RETRIES: Final = 2
_MISSING: Final = "Ray is not installed: pip install 'lostflops[ray]'"
_OPEN: Final = (
    "the Ray cluster at {} is open to other machines and requires no token: anyone who reaches it can run code on it. "
    "Start it with RAY_AUTH_MODE=token, set that and RAY_AUTH_TOKEN_PATH here too, or unset RAY_ADDRESS"
)


@contextmanager
def ray_tasks(workers: int) -> Iterator[RayTasks]:
    """Yield tasks on the cluster that RAY_ADDRESS names, otherwise on one that is started here and ends with this."""
    address = os.environ.get("RAY_ADDRESS")
    with _with_token(address):
        try:
            import ray  # noqa: PLC0415 - an extra that no other engine needs
        except ImportError:
            raise UsageError(_MISSING) from None
        yield from _start_ray(ray, address, workers)


@contextmanager
def _with_token(address: str | None) -> Iterator[None]:
    """Make a cluster that is started here require a token, whatever was set.

    Ray reads the setting when it is imported, and may change it; it is restored afterwards, so that it does not apply
    to a later cluster.
    """
    before = os.environ.get(_MODE)
    if not address:
        os.environ[_MODE] = "token"
    try:
        yield
    finally:
        os.environ.pop(_MODE, None)
        if before is not None:
            os.environ[_MODE] = before


def _start_ray(ray: Any, address: str | None, workers: int) -> Iterator[RayTasks]:
    if address:
        refuse_open(address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    quiet: dict[str, Any] = {"include_dashboard": False} if not address else {}
    own: dict[str, Any] = {"num_cpus": workers, "_node_ip_address": LOOPBACK} if not address else {}
    ray.init(address=address or "local", log_to_driver=False, configure_logging=False, **quiet, **own)
    try:
        reached = [node["NodeManagerAddress"] for node in ray.nodes()]
        for one in reached:
            refuse_open(one)
        # That a token is sent does not say that it is looked at.
        others = [one for one in reached if not _is_loopback(one)]
        if others and not _asked_there(ray):
            raise UsageError(_OPEN.format(others[0]) + ".")
        yield RayTasks(ray)
    finally:
        ray.shutdown()


def _asked_there(ray: Any) -> bool:
    try:
        return bool(ray.get(ray.remote(asks_for_token).remote()))
    except ray.exceptions.RayTaskError as error:
        last = str(error).strip().splitlines()[-1]
        raise UsageError(f"the Ray cluster cannot run Lostflops {__version__}; install it there: {last}") from None


def refuse_open(address: str) -> None:
    """Raise for a cluster that is neither on loopback nor requires a token.

    >>> refuse_open("127.0.0.1:6379"), refuse_open("ray://[::1]:10001"), refuse_open("localhost")
    (None, None, None)
    """
    try:
        host = urlsplit(address if "//" in address else f"//{address}").hostname or ""
    except ValueError:
        raise UsageError(f"RAY_ADDRESS is not an address: {address}") from None
    if not _is_loopback(host) and not asks_for_token():
        raise UsageError(_OPEN.format(address) + ".")


def asks_for_token() -> bool:
    """Return whether Ray's processes with this environment require a token; on a cluster, whether those there do."""
    return os.environ.get(_MODE, "").lower() == "token"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class RayTasks:
    """The engine of many machines."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._remote = ray.remote(max_retries=_RETRIES)(_answer_order)
        self._most = max(int(ray.cluster_resources().get("CPU", 1)), 1) * _AHEAD

    def map(self, work: Work[T, R], items: Sequence[T], on_read: OnRead, on_done: Callable[[T], None]) -> list[R]:
        waiting = deque(range(len(items)))
        flying: dict[Any, int] = {}
        results: dict[int, R] = {}
        try:
            while waiting or flying:
                while waiting and len(flying) < self._most:
                    number = waiting.popleft()
                    flying[self._remote.remote(encode_order(work, items[number]))] = number
                (ready,), _ = self._ray.wait(list(flying), num_returns=1)
                number = flying.pop(ready)
                read, results[number] = self._result(work, items[number], ready)
                on_read(read)
                on_done(items[number])
        finally:
            for left in flying:
                self._ray.cancel(left, force=True)
        return [results[number] for number in range(len(items))]

    def _result(self, work: Work[T, R], item: T, done: Any) -> tuple[int, R]:
        try:
            read, answer = msgspec.json.decode(self._ray.get(done), type=tuple[int, WorkAnswer])
        except (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.OutOfMemoryError) as error:
            said = f"workers died {_RETRIES + 1} times while reading {work.about(item)} ({type(error).__name__})"
            refusal = BrokenSource(f"{said}. Give Ray more memory, or fewer workers with --workers.")
            if work.refuse is None:
                raise refusal from None
            return 0, work.refuse(item, refusal)
        return read, result_of(work, answer)


def _answer_order(order: bytes) -> bytes:
    """Run an order on the cluster: Ray only gets its name, so the same Lostflops must be installed there."""
    read = 0

    def count(more: int) -> None:
        nonlocal read
        read += more

    answer = carried_out(order, count)
    return msgspec.json.encode((read, answer))
