"""What each process of a log said about its communicators.

A line does not name its communicator, except where it starts and where a collective is called (subsystem COLL). Other
lines belong to the communicator that their thread is starting. If it is starting none, they belong to the only
communicator of the process that they fit. Lines that fit several are counted and dropped.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from lostflops.core.limits import LARGEST_WORLD
from lostflops.ingest.common.ops import canonical_op

MOST_COMMUNICATORS: Final = 256
"""Communicators of a process: a large job with all parallelisms has a few dozen."""
MOST_FACTS: Final = 100_000
"""Different connections of a process, and different choices: real logs have a few hundred."""
_MOST_CALLS: Final = 100_000
"""Different sizes whose operations and communicators are remembered, in a process."""
_LARGEST_SIZE: Final = 1 << 60
_LONGEST_NAME: Final = 200
_MOST_SETTINGS: Final = 64

_ALGORITHMS: Final = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""In the order of NCCL's numbers (NCCL_ALGO_TREE is 0)."""
_PROTOCOLS: Final = ("LL", "LL128", "Simple")
_TYPE_BYTES: Final = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Bytes of an element, in the order of NCCL's ncclDataType_t."""
_SHARDED: Final = frozenset({"all_gather", "reduce_scatter"})

_START: Final = re.compile(
    r"(?:\w{1,64} )?comm (0x[0-9a-f]{1,16}) rank (\d{1,7}) nranks (\d{1,7}) cudaDev (\d{1,6}) (?:nvmlDev \d{1,6} )?"
    r"busId ([0-9a-f]{1,16}) (?:commId (0x[0-9a-f]{1,16})|parent (0x[0-9a-f]{1,16}) splitCount (-?\d{1,9}) "
    r"color (-?\d{1,19}) key -?\d{1,19}) ?- Init (START|COMPLETE)"
)
_END: Final = re.compile(r"comm (0x[0-9a-f]{1,16}) rank \d{1,7} nranks \d{1,7} .{0,80}- (?:Destroy|Abort) COMPLETE")
_LINK: Final = re.compile(
    r"Channel \d{1,4}(?:/\d{1,4})? : (\d{1,7})\[[0-9a-f]{1,16}\] -> (\d{1,7})\[[0-9a-f]{1,16}\]\s+"
    r"(?:\[(?:send|receive)\]\s+)?via (.{1,100}?)(?: comm (0x[0-9a-f]{1,16}) nRanks \d{1,7})?$"
)
_RING: Final = re.compile(r"Channel \d{1,4}/(\d{1,4}) : +\d{1,7}(?: |$)")
_CHANNELS: Final = re.compile(r"(\d{1,4}) coll channels,(?: \d{1,4} collnet channels,)? (\d{1,4}) nvls channels")
_CALL: Final = re.compile(
    r"(\w{1,32}): opCount [0-9a-f]{1,16} sendbuff .{1,64} count (\d{1,19}) datatype (\d{1,2}) op \d{1,9} "
    r"root \d{1,9} comm (0x[0-9a-f]{1,16}) \[nranks=(\d{1,7})\]"
)
_CHOICE: Final = re.compile(
    r"(?:(\w{1,32}): )?(\d{1,19}) Bytes -> Algo (\w{1,20}) proto (\w{1,10}) "
    r"(?:time [\d.e+-]{1,24}|channel\{Lo\.\.Hi\}=\{(\d{1,4})\.\.(\d{1,4})\})"
)
_SETTING: Final = re.compile(r"\b(NCCL_\w{1,64}) set by environment to (.{1,100}?)\.?$")
_ADAPTER: Final = re.compile(r"\[\d{1,3}\](\S{1,64})")
_INDEX: Final = re.compile(r"/\d{1,4}(?:\(\d{1,7}\))?(?=/|$)")
"""The number of an adapter in `NET/IB/3/GDRDMA`, and the rank whose adapter it is in `NET/IB/3(5)`."""


_Caller = tuple[str, int]
"""Name and size of a communicator."""


@dataclass(slots=True, kw_only=True)
class NcclCommunicator:
    """A process's part in a communicator."""

    name: str
    """Its commId, or its parent with the number and color of the split: the same in all processes."""
    address: str
    rank: int
    size: int
    device: int
    bus: str
    is_complete: bool = False
    is_ended: bool = False
    channels: int | None = None
    nvls_channels: int | None = None
    rings: int | None = None
    links: Counter[tuple[int, int, str]] = field(default_factory=Counter)
    """Channels by sender, receiver and transport."""


@dataclass(frozen=True, slots=True)
class NcclChoice:
    communicator: str | None
    """None if the line fits several."""
    op: str | None
    size: int
    """Bytes of the whole tensor, as in NCCL's model."""
    algorithm: str
    protocol: str
    channels: int | None


@dataclass(slots=True, kw_only=True)
class NcclProcess:
    host: str
    pid: int
    version: str | None = None
    network: str | None = None
    adapters: str | None = None
    """Adapters of NET/IB, as listed; empty if it found none, None if it did not say."""
    settings: dict[str, str] = field(default_factory=dict)
    """Variables of NCCL that were set in the environment."""
    communicators: list[NcclCommunicator] = field(default_factory=list)
    choices: Counter[NcclChoice] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    _starting: dict[int, NcclCommunicator] = field(default_factory=dict)
    """By thread."""
    _newest: dict[str, NcclCommunicator] = field(default_factory=dict)
    """By address; addresses are used again."""
    _alive: set[_Caller] = field(default_factory=set)
    _leading: set[_Caller] = field(default_factory=set)
    """Those of which this process is rank 0."""
    _called: dict[int, set[tuple[str, _Caller]]] = field(default_factory=lambda: defaultdict(set))
    """Operations and communicators that were called with a size."""
    _link_count: int = 0

    @property
    def world(self) -> NcclCommunicator | None:
        """Return its largest communicator, the last one of several: it has all ranks of the job."""
        return max(reversed(self.communicators), key=lambda one: one.size, default=None)

    def count_choices(self) -> Counter[NcclChoice]:
        """Return how many calls made each choice. Some versions write two lines for a call: one with the predicted time
        and, on rank 0, one with the channels."""
        counts = self.choices.copy()
        for choice, calls in self.choices.items():
            if choice.channels is None:
                continue
            timed, left = replace(choice, channels=None), calls
            for other in (timed, replace(timed, communicator=None), replace(timed, communicator=None, op=None)):
                same = min(left, counts[other])
                left -= same
                counts[other] -= same
        return +counts

    def take(self, thread: int, said: str) -> None:
        """Read what a thread said after `NCCL INFO`."""
        for start, reader in _READERS:
            if start in said:
                reader(self, thread, said)
                return

    def take_start(self, thread: int, said: str) -> None:
        if (found := _START.search(said)) is None:
            self._take_end(said)
            return
        address, rank, size, device, bus, name, parent, split, color, stage = found.groups()
        if not int(rank) < int(size) <= LARGEST_WORLD:
            self.losses["nccl_lines_unreadable"] += 1
            return
        known = self._newest.get(address)
        if known is None or (known.is_complete and stage == "START"):
            if len(self.communicators) >= MOST_COMMUNICATORS:
                self.losses["nccl_facts_dropped"] += 1
                return
            known = NcclCommunicator(
                name=name or self._child_name(parent, split, color),
                address=address,
                rank=int(rank),
                size=int(size),
                device=int(device),
                bus=bus,
            )
            self._add(known)
        if stage == "START":
            self._starting[thread] = known
        else:
            known.is_complete = True
            self._starting.pop(thread, None)

    def _add(self, new: NcclCommunicator) -> None:
        self.communicators.append(new)
        self._newest[new.address] = new
        self._alive.add((new.name, new.size))
        if new.rank == 0:
            self._leading.add((new.name, new.size))

    def _take_end(self, said: str) -> None:
        if (found := _END.search(said)) and (known := self._newest.get(found[1])):
            known.is_ended = True
            self._alive.discard((known.name, known.size))
            self._leading.discard((known.name, known.size))

    def _child_name(self, parent: str, split: str, color: str) -> str:
        known = self._newest.get(parent)
        return f"{known.name if known else parent}/{split}:{color}"[:_LONGEST_NAME]

    def take_link(self, thread: int, said: str) -> None:
        if ring := _RING.search(said):
            if own := self._starting.get(thread):
                own.rings = int(ring[1])
            return
        found = _LINK.search(said)
        if found is None:
            self.losses["nccl_lines_unreadable"] += " via " in said
            return
        sender, receiver = int(found[1]), int(found[2])
        own = self._newest.get(found[4]) if found[4] else self._starting.get(thread) or self._only(sender, receiver)
        if own is None or max(sender, receiver) >= own.size or own.rank not in {sender, receiver}:
            self.losses["nccl_links_ambiguous"] += 1
            return
        key = sender, receiver, _INDEX.sub("", found[3].strip())
        if key not in own.links:
            if self._link_count >= MOST_FACTS:
                self.losses["nccl_facts_dropped"] += 1
                return
            self._link_count += 1
        own.links[key] += 1

    def _only(self, sender: int, receiver: int) -> NcclCommunicator | None:
        fitting = [
            one
            for one in self.communicators
            if not one.is_ended and one.rank in {sender, receiver} and max(sender, receiver) < one.size
        ]
        return fitting[0] if len(fitting) == 1 else None

    def take_channels(self, thread: int, said: str) -> None:
        found, own = _CHANNELS.search(said), self._starting.get(thread)
        if found and own:
            own.channels, own.nvls_channels = int(found[1]), int(found[2])

    def take_network(self, _thread: int, said: str) -> None:
        self.network = said.partition("Using network ")[2].strip()[:64]

    def take_setting(self, _thread: int, said: str) -> None:
        if (found := _SETTING.search(said)) and len(self.settings) < _MOST_SETTINGS:
            self.settings[found[1]] = found[2]

    def take_adapters(self, _thread: int, said: str) -> None:
        listed = said.partition("NET/IB : ")[2].partition("OOB")[0]
        if listed.startswith("Using"):
            self.adapters = " ".join(_ADAPTER.findall(listed)[:128])
        elif listed.startswith("No device found"):
            self.adapters = ""

    def take_call(self, _thread: int, said: str) -> None:
        found = _CALL.search(said)
        op = canonical_op(found[1]) if found else None
        own = self._newest.get(found[4]) if found else None
        if found is None or op is None or own is None or int(found[3]) >= len(_TYPE_BYTES):
            return
        size = int(found[2]) * _TYPE_BYTES[int(found[3])] * (int(found[5]) if op in _SHARDED else 1)
        if size < _LARGEST_SIZE and (len(self._called) < _MOST_CALLS or size in self._called):
            self._called[size].add((op, (own.name, own.size)))

    def take_choice(self, _thread: int, said: str) -> None:
        found = _CHOICE.search(said)
        algorithm = _named(found[3], _ALGORITHMS) if found else None
        protocol = _named(found[4], _PROTOCOLS) if found else None
        channels = int(found[6]) - int(found[5]) + 1 if found and found[5] else None
        is_possible = found is not None and int(found[2]) < _LARGEST_SIZE and (channels is None or channels > 0)
        if found is None or algorithm is None or protocol is None or not is_possible:
            self.losses["nccl_lines_unreadable"] += 1
            return
        op, size = (canonical_op(found[1]) if found[1] else None), int(found[2])
        caller = self._caller(op, size, is_share=channels is not None)
        if caller is not None and channels is not None and op in _SHARDED:
            size *= caller[1]
        if channels is not None and op in _SHARDED and caller is None:
            self.losses["nccl_choices_ambiguous"] += 1
            return
        op = op or self._only_op(size)
        choice = NcclChoice(caller[0] if caller else None, op, size, algorithm, protocol, channels)
        if choice not in self.choices and len(self.choices) >= MOST_FACTS:
            self.losses["nccl_facts_dropped"] += 1
            return
        self.choices[choice] += 1

    def _caller(self, op: str | None, size: int, *, is_share: bool) -> _Caller | None:
        """Return the only communicator that can have made a choice.

        A line with channels has one rank's share of sharded operations, and only rank 0 of a communicator writes it.
        """
        alive = self._leading if is_share else self._alive
        if len(alive) == 1:
            return next(iter(alive))
        factors = {caller[1] for caller in alive} if is_share and op in _SHARDED else {1}
        fitting = {
            caller
            for factor in factors
            for called_op, caller in self._called.get(size * factor, ())
            if op in {None, called_op} and caller in alive and factor in {1, caller[1]}
        }
        return next(iter(fitting)) if len(fitting) == 1 else None

    def _only_op(self, size: int) -> str | None:
        """Return the operation of a choice that does not name it: the only one that was called with its size."""
        ops = {op for op, _ in self._called.get(size, ())}
        return next(iter(ops)) if len(ops) == 1 else None


_READERS: Final[tuple[tuple[str, Callable[[NcclProcess, int, str], None]], ...]] = (
    ("Bytes -> Algo ", NcclProcess.take_choice),
    (": opCount ", NcclProcess.take_call),
    ("Channel ", NcclProcess.take_link),
    ("coll channels,", NcclProcess.take_channels),
    ("Using network ", NcclProcess.take_network),
    ("NET/IB : ", NcclProcess.take_adapters),
    (" set by environment to ", NcclProcess.take_setting),
    (" rank ", NcclProcess.take_start),
)


def _named(word: str, names: tuple[str, ...]) -> str | None:
    """Return the name of a number or of a spelling.

    >>> _named("1", _ALGORITHMS), _named("NVLS_TREE", _ALGORITHMS), _named("9", _PROTOCOLS)
    ('ring', 'nvls_tree', None)
    """
    if word.isdecimal():
        return names[int(word)] if int(word) < len(names) else None
    return next((name for name in names if name.lower() == word.lower()), None)
