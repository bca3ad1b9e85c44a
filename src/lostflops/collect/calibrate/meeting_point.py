"""Where the ranks of a health check meet: a store that shows who is there and what each is doing.

A rank that never starts, dies or hangs is named by the others, instead of a timeout of PyTorch.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from lostflops.core.errors import LostflopsError, UsageError

_POLL: Final = 0.05
_LAST_WORDS: Final = 1.0
"""Seconds that others wait after the deadline, so that rank 0 can say what happened first."""
_MOST_NAMED: Final = 8
_NO_WORD: Final = "rank 0 did not say that all ranks are there; see its output."
PHASES: Final = (
    *("start", "connect", "clocks", "matmul", "after matmul", "memory", "after memory"),
    *("links", "collectives", "result"),
)
"""In their order; `after` is the wait for ranks that are still measuring."""


class MeetingPoint:
    def __init__(self, launched: Mapping[str, str], deadline: float) -> None:
        self.rank, self.world = int(launched["RANK"]), int(launched["WORLD_SIZE"])
        self._address, self._port = _read_address({**os.environ, **launched})
        self._deadline = deadline
        self._prefix = f"lostflops/health/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        self._watch: threading.Timer | None = None
        self._store = self._connect()
        self.store = dist.PrefixStore(f"{self._prefix}/groups", self._store)

    def _connect(self) -> Any:
        is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        timeout = timedelta(seconds=max(self._deadline - time.monotonic(), 1))
        try:
            return dist.TCPStore(
                self._address,
                self._port,
                is_master=self.rank == 0 and not is_agents,
                timeout=timeout,
                wait_for_workers=False,
                multi_tenant=True,
            )
        except (RuntimeError, ValueError) as error:
            if self.rank == 0 and not is_agents:
                what = str(error).splitlines()[0]
                raise LostflopsError(
                    f"rank 0 cannot listen on port {self._port}: set another MASTER_PORT. {what}"
                ) from None
            raise LostflopsError(
                f"rank 0 at {self._address}:{self._port} does not answer: check that it was started, and that this "
                f"host ({socket.gethostname()}) reaches it. PyTorch: {str(error).splitlines()[0]}"
            ) from None

    def arrive(self, seconds: float, problem: str = "") -> None:
        """Wait until all ranks are there; raise if one is not, or cannot take part."""
        self._set(f"here/{self.rank}", problem or f"={socket.gethostname()}")
        until = time.monotonic() + seconds
        try:
            if self.rank == 0:
                self._set("start", self._call_roll(until))
            is_said = self._wait("start", until + _LAST_WORDS)
            said = self._get("start") if is_said else _NO_WORD
        except RuntimeError:  # the store was rank 0's
            said = _NO_WORD
        if said:
            time.sleep(_LAST_WORDS if self.rank == 0 else 0)  # the others read it from rank 0's store
            raise LostflopsError(said)

    def _call_roll(self, until: float) -> str:
        """Return what prevents the start; empty if all ranks are there."""
        missing = set(range(self.world))
        while missing:
            missing -= {rank for rank in missing if self._store.check([f"{self._prefix}/here/{rank}"])}
            if missing and time.monotonic() > until:
                here = sorted({self._get(f"here/{rank}")[1:] for rank in range(self.world) if rank not in missing})
                return (
                    f"{_name(missing)} of {self.world} did not start within the time limit. Hosts whose ranks started: "
                    f"{', '.join(here[:_MOST_NAMED])}. Check the launcher's output for the missing ranks, and that "
                    f"their hosts reach {self._address}:{self._port}."
                )
            time.sleep(_POLL if missing else 0)
        said = [(rank, self._get(f"here/{rank}")) for rank in range(self.world)]
        return next((f"rank {rank} cannot take part: {text}" for rank, text in said if not text.startswith("=")), "")

    def enter(self, phase: str) -> None:
        self._set(f"phase/{self.rank}", phase)

    def describe(self) -> str:
        """Return which ranks are behind the others, and in what."""
        try:
            return self._describe()
        except RuntimeError:  # the store was rank 0's
            return "rank 0 has ended; see its output"

    def _describe(self) -> str:
        phases = [self._phase(rank) for rank in range(self.world)]
        first = min(phases, key=PHASES.index)
        behind = {rank for rank, phase in enumerate(phases) if phase == first}
        if len(behind) == self.world:
            return f"all ranks are in phase {first}"
        hosts = sorted({self._get(f"here/{rank}")[1:] for rank in behind})
        return f"{_name(behind)} on {', '.join(hosts[:_MOST_NAMED])} did not get past phase {first}"

    def guard(self) -> None:
        """End this process at the deadline; rank 0 says first which ranks are behind."""
        if self.rank == 0:
            self._store = self._store.clone()  # the main thread may be inside the other one
        left = max(self._deadline - time.monotonic(), 0)
        self._watch = threading.Timer(left if self.rank == 0 else left + _LAST_WORDS, self._give_up)
        self._watch.daemon = True
        self._watch.start()

    def _give_up(self) -> None:
        try:
            if self.rank == 0:
                said = f"no result within the time limit: {self.describe()}. See their output and their hosts."
                print(f"lostflops: {said}", file=sys.stderr, flush=True)
        finally:
            os._exit(1)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    def _phase(self, rank: int) -> str:
        key = f"{self._prefix}/phase/{rank}"
        return self._get(f"phase/{rank}") if self._store.check([key]) else PHASES[0]

    def _set(self, key: str, value: str) -> None:
        self._store.set(f"{self._prefix}/{key}", value)

    def _get(self, key: str) -> str:
        return str(self._store.get(f"{self._prefix}/{key}").decode())

    def _wait(self, key: str, until: float) -> bool:
        while not self._store.check([f"{self._prefix}/{key}"]):
            if time.monotonic() > until:
                return False
            time.sleep(_POLL)
        return True


def _read_address(environment: Mapping[str, str]) -> tuple[str, int]:
    """Return host and port of rank 0.

    >>> _read_address({"MASTER_ADDR": "node0", "MASTER_PORT": "29500"})
    ('node0', 29500)
    """
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT", "")
    if not address or not port.isdecimal():
        raise UsageError("MASTER_ADDR and MASTER_PORT are not set: start the ranks with torchrun, or set them.")
    return address, int(port)


def _name(ranks: set[int]) -> str:
    """Return ranks in words.

    >>> _name({3}), _name({2, 0}), _name(set(range(20)))
    ('rank 3', 'ranks 0, 2', 'ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more')
    """
    listed = sorted(ranks)
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return f"rank{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed[:_MOST_NAMED]))}{more}"
