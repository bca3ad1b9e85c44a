"""State of this process as the collector sees it: what hooks report, what is written, what it costs.

Everything that hooks call is guarded here: an exception is counted and recorded in the capture, and the program never
sees it.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from torch.compiler import is_compiling

from lostflops._version import __version__
from lostflops.collect.budget import EDGES_ONLY, NO_RING, OFF, Budget
from lostflops.collect.capture import BEGAN, ENDED, STOPPED, VERSION
from lostflops.collect.compilations import Compilations
from lostflops.collect.endings import describe_error, process_start, tell_of_failures, uncaught, uncaught_at_exit
from lostflops.collect.graph_captures import GraphCaptures
from lostflops.collect.marks import Marks
from lostflops.collect.settings import Settings
from lostflops.collect.step_kinds import StepKinds
from lostflops.collect.steps import BACKWARD, PHASES, ClockedStep, StepClock
from lostflops.collect.writer import Writer

_MOST_ERRORS: Final = 20
_FACTS_AFTER: Final = 3
"""The step after which the job is described: DDP has rebuilt its buckets by then."""
_CLOCK_EVERY: Final = 60_000_000_000


class Recorder:
    def __init__(self, settings: Settings, import_began: int | None = None) -> None:
        self.settings = settings
        self.is_off = self._was_off = False
        self.rank, self.world_size, self.local_rank = 0, 1, 0
        self.host = socket.gethostname()
        self.session = uuid.uuid4().hex[:16]
        self.clock = StepClock(self._step_ended)
        self.captures = GraphCaptures()
        self.writer: Writer | None = None
        self.windows: Any = None
        self.marks, self._kinds = Marks(), StepKinds(self.put)
        self.holdings: Any = None
        """Tracks what is using the memory, while a window that records it is open."""
        self._last_batch: list[weakref.ref[Any]] = []
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.hooks: list[Callable[[], None]] = []
        """Functions that remove our hooks."""
        self.unseen: list[str] = []
        """Names of what cannot be observed in this version of torch."""
        self._thread = threading.main_thread().ident
        self._is_thread_known = False
        self._budget = Budget(settings.overhead)
        self._is_without_phases = False
        """The budget is spent: no phase is recorded. Set outside of all phases, so that each entered phase is left."""
        self._ring: Any = None
        self._device: Any = None
        self._peak_memory: Callable[[], int] = _process_memory
        self._offset = time.time_ns() - time.monotonic_ns()
        self._attached, self.group_setup, self.import_began = time.monotonic_ns(), 0, import_began
        """When the hooks were set, the time spent so far in making process groups, and when the import of torch began,
        in ns."""
        self._hidden: Any = None
        self.forward_calls: Any = None
        """Watches modules; set when hooks are installed."""
        self._hook_guard = threading.Lock()
        self._garbage: Any = None
        self.interludes: Any = None
        """Checkpoints and evaluations of the step; set when hooks are installed."""
        self._usage: Any = None
        self._modes: Any = None
        self._threads: Any = None
        self._network: Any = None
        self._roots: list[weakref.ref[Any]] | None = None
        self._errors = 0
        self._compilations = Compilations()
        self._is_disturbed = False
        self._clock_read = 0
        self._not_own = 0
        self._is_described = False
        self._stalls: Any = None
        self._process = os.getpid()
        self._earlier_error = id(getattr(sys, "last_value", None))

    # What hooks call, on the training thread.

    def enter(self, phase: int) -> None:
        if not (self._is_without_phases and self._hidden is None):
            self.run_guarded(lambda now: self._enter(phase, now))

    def leave(self) -> None:
        if not self._is_without_phases:
            self.run_guarded(self._leave)

    def run_guarded(self, action: Callable[[int], None]) -> None:
        """Run `action(now)` if this is the training thread of a process that records; its time counts as our own."""
        if self.is_off or threading.get_ident() != self._thread:
            return
        try:
            now = time.monotonic_ns()
            self._not_own = 0
            action(now)
            self.clock.step.own += time.monotonic_ns() - now - self._not_own
        except Exception as error:  # noqa: BLE001
            self.count_failure(error)

    def updates(self, optimizer: Any) -> None:
        """Note that an optimizer's step begins, on any thread; inside a backward pass it may be the engine's."""
        try:
            if optimizer not in self._optimizers:
                self._optimizers.add(optimizer)
                if self.forward_calls is not None:
                    self.forward_calls.is_due = True
            self._hidden = None
            if threading.get_ident() != self._thread:
                self.clock.updated_elsewhere()
            self._kinds.add(optimizer)
        except Exception as error:  # noqa: BLE001
            self.count_failure(error)

    def handed_over(self, batch: Any, *, is_counted: bool = True) -> None:
        """Note that a loader gave the program this batch; `is_counted`: count its samples, which are not known yet."""
        self.run_guarded(lambda _: self._take(batch, is_counted=is_counted))

    def mark(self, name: object) -> None:
        """Record the memory at this moment under a name, on any thread; a graph that is traced has no such moment."""
        if is_compiling() or self.is_off:
            return
        try:
            began = time.monotonic_ns()
            self.marks.add(self, name)
            if threading.get_ident() == self._thread:
                self.clock.step.own += time.monotonic_ns() - began
        except Exception as error:  # noqa: BLE001
            self.count_failure(error)

    def spent_in_comm_hook(self, ns: int) -> None:
        """Count time inside a communication hook, which the autograd engine may run on a thread of its own."""
        with self._hook_guard:
            if not self.is_off:
                step = self.clock.step
                step.comm_hook = (step.comm_hook or 0) + ns

    def passes_backward(self) -> None:
        """Note that a backward pass begins."""
        if self._modes is not None:
            self.run_guarded(lambda _: self._modes.look())
        self.enter(BACKWARD)

    def evaluates(self) -> None:
        """Note that a forward pass without gradients begins."""
        self.clock.step.is_evaluated = True
        self.run_guarded(self.interludes.evaluation_begins)

    def on_evaluation_end(self) -> None:
        self.run_guarded(self.interludes.evaluation_ended)

    def is_updating(self, optimizer: int) -> bool:
        """Return whether the optimizer of this identity still exists."""
        return any(id(known) == optimizer for known in self._optimizers)

    def training(self) -> None:
        """Note that a backward pass or an optimizer's step begins on this thread: the process trains."""
        if self._is_thread_known or self.is_off:
            return
        self._is_thread_known = True
        try:
            if threading.get_ident() != self._thread:
                self._thread, is_explicit = threading.get_ident(), self.clock.is_explicit
                self.clock = StepClock(self._step_ended)
                self.clock.is_explicit = is_explicit
            if _is_loading_data():
                self.is_off = True
            else:
                self._begin()
        except Exception as error:  # noqa: BLE001
            self.is_off, self.writer = True, None
            _debug(error)

    # What parts of the collector call.

    @property
    def is_thinned(self) -> bool:
        """Whether the budget is spent, so that neither the ring nor stacks are read."""
        return self._budget.level >= NO_RING

    def put(self, record: dict[str, Any]) -> None:
        if self.writer is not None:
            self.writer.put(record)

    def note(self, what: str, reason: str, count: int = 1) -> None:
        self.put({"kind": "note", "what": what, "count": count, "reason": reason})

    def wall(self, monotonic: int | None = None) -> int:
        return (time.monotonic_ns() if monotonic is None else monotonic) + self._offset

    def roots(self) -> list[Any]:
        """Return the outermost modules that are trained."""
        if self._roots is None:
            return self.find_roots()
        return [root for root in (known() for known in self._roots) if root is not None]

    def optimizers(self) -> list[Any]:
        return list(self._optimizers)

    def last_batch(self) -> list[Any]:
        """Return the tensors of the last batch that still exist."""
        return [tensor for tensor in (known() for known in self._last_batch) if tensor is not None]

    def find_roots(self) -> list[Any]:
        from lostflops.collect.model_facts import outermost_modules

        found = outermost_modules(list(self._optimizers))
        self._roots = [weakref.ref(root) for root in found]
        return found

    def count_failure(self, error: Exception) -> None:
        """Count an error of the collector; stop recording after too many."""
        try:
            self._errors += 1
            _debug(error)
            self.note("collector_errors", f"{type(error).__name__} in {_place_of(error)}")
            if self._errors >= _MOST_ERRORS and threading.get_ident() == self._thread:
                self._give_up("the collector stopped after internal errors")
        except Exception:  # noqa: BLE001 - no memory even for that
            self.is_off = True

    def abandon(self) -> None:
        """Stop recording in a forked child: a recording belongs to the parent alone.

        If the parent did not train yet, the child may still record itself. Locks are new: the thread that held one at
        the fork does not exist here, and would never free it.
        """
        self._hook_guard = threading.Lock()
        self.captures.forget()
        if self._is_thread_known:
            if self.windows is not None:
                self.windows.abandon()
            self.is_off = True
            self.writer = self.windows = None
        else:
            self._thread = threading.main_thread().ident
            self.clock = StepClock(self._step_ended)
            self.marks = Marks()
            self._process = os.getpid()
            self.session = uuid.uuid4().hex[:16]

    def remove_hooks(self) -> None:
        if self.forward_calls is not None:
            self.forward_calls.remove()
        while self.hooks:
            self.hooks.pop()()

    def flush(self) -> None:
        """Write what was recorded: this process ends now, or becomes another program, without its exit functions."""
        if self.writer is not None and os.getpid() == self._process:
            self.writer.flush()

    def close(self, *, is_exit: bool = True) -> None:
        """Write what is still known, then the end; `is_exit` if the program ends too, and may say of what."""
        if os.getpid() != self._process:
            self.is_off = True
            return
        began = self.wall()
        ran_out = self._ran_out()
        error = uncaught_at_exit(self._earlier_error) if is_exit else None
        self._was_off, self.is_off = self.is_off, True
        if self.writer is None:
            with suppress(Exception):  # a process that did not train may have launched those that did
                tell_of_failures(self.settings.folder, error, self.settings.began)
            return
        if ran_out is not None:
            self.put({"kind": "job", "key": "out_of_memory", "value": ran_out})
        self.put({"kind": "job", "key": ENDED, "value": {"wall": began, **describe_error(error)}})
        for last in (
            self._finish_steps,
            self._stalls.close,
            self.windows.close,
            self._describe_other_profilers,
            self._last_words,
        ):
            try:
                last()
            except Exception as error:  # noqa: BLE001
                self.count_failure(error)
        self.put({"kind": "end", "wall": self.wall(), "reason": "exit"})
        self.writer.close()

    def _finish_steps(self) -> None:
        """Record the only step of a program, whose end nothing else shows, and what was compiled since the last."""
        if not self._was_off:
            self.clock.finish()
        for record in self._compilations.take(self.clock.step.number):
            self.put(record)

    def _describe_other_profilers(self) -> None:
        from lostflops.collect.other_profilers import others

        if (record := others().record) is not None:
            self.put({"kind": "job", "key": "own_profiler", "value": record})

    def _ran_out(self) -> dict[str, Any] | None:
        """Return the last state of a program that ends because it ran out of memory; None if it does not.

        A program that has not trained yet is recorded too: most run out of memory in their first pass.
        """
        last = uncaught(self._earlier_error)
        if last is None:
            return None
        try:
            from lostflops.collect.out_of_memory import ending, last_state

            error = ending(last)
            if error is None or (self.writer is None and (self.is_off or _is_loading_data())):
                return None
            found = last_state(error, self.clock.step.number, is_after_forward=self.clock.is_after_forward)
            if self.writer is None:
                self._begin()
            return found
        except Exception as own:  # noqa: BLE001
            self.count_failure(own)
            return None

    # How it works inside.

    def _begin(self) -> None:
        from lostflops.collect.busy_threads import BusyThreads
        from lostflops.collect.debug_modes import DebugModes
        from lostflops.collect.device_time import device_time
        from lostflops.collect.flight_ring import FlightRing
        from lostflops.collect.garbage import Garbage
        from lostflops.collect.graph_captures import GRAPHS
        from lostflops.collect.hidden_updates import HiddenUpdates
        from lostflops.collect.identity import identity
        from lostflops.collect.network import NetworkCounters
        from lostflops.collect.nvtx import show_in_nvtx
        from lostflops.collect.stalls import Stalls
        from lostflops.collect.thread_usage import ThreadUsage
        from lostflops.collect.windows import Windows

        show_in_nvtx(self.clock)
        found = identity()
        self.rank, self.world_size, self.local_rank = found["rank"], found["world_size"], found["local_rank"]
        self._ring = FlightRing(self.settings.overhead)
        self._stalls = Stalls(self)
        self._device = device_time(self.captures) if GRAPHS not in self.unseen else None
        self._hidden = HiddenUpdates()
        self._garbage = Garbage(self._thread)
        self._garbage.watch()
        self._usage, self._modes = ThreadUsage(), DebugModes(self.put)
        self._threads = BusyThreads(self._thread, self.put)
        self._network = NetworkCounters(self.put, self.wall, has_interfaces=self.local_rank == 0)
        self.hooks.append(self._garbage.leave)
        if self._device is not None:
            self.clock.watchers.append(self._device)
        self.clock.loss_is_forward = "torch.distributed.pipelining" not in sys.modules
        self._peak_memory = _device_memory if found["device"] == "cuda" else _process_memory
        writer = Writer(self.settings.folder, self.rank, self.session, self._chores)
        self.writer = writer
        now = time.monotonic_ns()
        self.put(
            {"kind": "session", "version": VERSION, "host": self.host, "pid": os.getpid(), "wall": self.wall(now),
             "monotonic": now, "lostflops": __version__, **found}
        )  # fmt: skip
        times = {"command": self.settings.began, "process": process_start(), "import": self.import_began}
        times["torch"] = self.wall(self._attached)
        self.put({"kind": "job", "key": BEGAN, "value": {**times, "process_group": self.group_setup}})
        for what in self.unseen:
            self.note("hooks_missing", f"this version of torch does not let the collector observe {what}")
        self.marks.release(self)
        self.windows = Windows(self)
        writer.start()

    def _enter(self, phase: int, now: int) -> None:
        if self.clock.is_between:
            if self._hidden is not None:
                self._look_for_updates(phase, now)
            self._is_without_phases = self._budget.level >= EDGES_ONLY
        if not self._is_without_phases:
            self.clock.enter(phase, now)

    def _leave(self, now: int) -> None:
        self.clock.leave(now)

    def _take(self, batch: Any, *, is_counted: bool) -> None:
        from lostflops.collect.batches import batch_size, tensors

        if is_counted:
            self.clock.batch(*batch_size(batch))
        if "memory" in self.settings.options:
            self._last_batch = [weakref.ref(tensor) for tensor in tensors(batch)]
            if self.holdings is not None:
                self.holdings.batch(self.last_batch())

    def _look_for_updates(self, phase: int, now: int) -> None:
        """End the step if parameters were updated; used only until an optimizer's hook is first called."""
        if phase == BACKWARD:
            self._optimizers.update(self._hidden.pass_begins())
        if self._hidden.has_updated():
            self.clock.end(now)

    def _step_ended(self, step: ClockedStep) -> None:
        if self.writer is None or self.writer.is_dead or self._errors >= _MOST_ERRORS:
            self._give_up("the collector stopped after internal errors")
            return
        compiled = self._compilations.has_new()
        self.writer.put_step(self._step_record(step, compiled))
        self._stalls.step_ended(step.stop - step.start)
        if compiled:
            self.windows.note_compilation(step.number)
            for record in self._compilations.take(step.number):
                self.put(record)
        if compiled or self._is_disturbed or step.number <= 1:
            self._budget.skip(self.writer.own)
        else:
            self._obey(self._budget.account(step.number, step.stop - step.start, step.own, self.writer.own))
        if self.is_off:
            return
        if not self.is_thinned:
            self._ring.edge(step.number, step.stop - step.start)
        began = time.monotonic_ns()
        self.interludes.watch(self)
        self.forward_calls.step_ended(step, is_compiled=self._compilations.count > 0)
        if step.number == _FACTS_AFTER:
            self._describe()
        before = self.windows.is_profiling
        self.windows.edge(step.number + 1)
        self._is_disturbed = before or self.windows.is_profiling or step.number == _FACTS_AFTER
        if self._ring.window_edge(step.number, is_open=self.windows.is_profiling):
            self._is_disturbed = True
            self.writer.hurry()
        self._not_own = time.monotonic_ns() - began

    def _describe(self) -> None:
        from lostflops.collect.model_facts import records

        self._is_described = True
        for record in records(self.roots()):
            self.put(record)

    def _last_words(self) -> None:
        if not self._is_described:
            self._describe()
        self._threads.look()
        self._threads.tell()
        self._network.record()
        self.marks.report_lost(self)
        self.captures.ask(self._last_questions)

    def _last_questions(self) -> None:
        self._read_ring()
        self._poll_device()

    def _step_record(self, step: ClockedStep, compiled: bool) -> dict[str, Any]:
        pauses, collections = self._garbage.take()
        return {
            "kind": "step",
            "step": step.number,
            "start": self.wall(step.start),
            "stop": self.wall(step.stop),
            **self._phases(step),
            "microbatches": step.microbatches,
            "samples": step.samples if step.is_counted else None,
            "tokens": step.tokens if step.is_counted else None,
            "peak_memory": self._peak_memory(),
            "own": step.own,
            "comm_hook": step.comm_hook,
            "gc": pauses,
            "gc_count": collections,
            **self._usage.take(),
            **self.interludes.take(),
            "kind_of_step": self._kinds.kind_of(step.optimizers),
            "skipped": step.skipped,
            "compiled": compiled,
            "profiled": self._is_disturbed,
        }

    def _phases(self, step: ClockedStep) -> dict[str, int | None]:
        """Return the time of each phase in ns; None if it could not be observed, which is not 0."""
        found: dict[str, int | None] = dict(zip(PHASES, step.phases, strict=True))
        if self._is_without_phases:
            return {**dict.fromkeys(PHASES), "optimizer": found["optimizer"]}
        if step.microbatches and not found["forward"]:
            found["forward"] = None
        return found

    def _obey(self, told: dict[str, Any] | None) -> None:
        if told is None:
            return
        self.put(told)
        if told["level"] >= OFF:
            self._give_up("the collector exceeded its overhead limit")

    def _give_up(self, reason: str) -> None:
        """Stop recording, on the training thread, and end what is open: hooks do nothing from now on."""
        self.is_off = True
        self.put({"kind": "job", "key": STOPPED, "value": {"wall": self.wall(), "reason": reason}})
        if self.windows is not None:
            self.windows.give_up(reason)

    def _chores(self) -> None:
        """Do what is due on the writer's thread, between two frames."""
        try:
            self.captures.ask(self._ask_device)
            self.windows.poll()
            self._threads.look()
            self._network.look(is_profiling=self.windows.is_profiling)
            now = time.monotonic_ns()
            if now - self._clock_read > _CLOCK_EVERY:
                self._clock_read = now
                self.put({"kind": "clock", "wall": time.time_ns(), "monotonic": now})
        except Exception as error:  # noqa: BLE001
            self.count_failure(error)

    def _ask_device(self) -> None:
        if self._ring.is_due:
            self._read_ring()
        if self._stalls.is_due():
            if not self.is_thinned:
                self.put(self._ring.read() or {"kind": "collectives", "entries": [], "groups": {}, "lost": 0})
            self._stalls.record(self._thread)
        self._poll_device()

    def _read_ring(self) -> None:
        record = self._ring.read()
        if record is not None:
            self.put(record)

    def _poll_device(self) -> None:
        for record in self._device.poll() if self._device is not None else ():
            self.put(record)


def _is_loading_data() -> bool:
    """Return whether this process is a worker of a loader: what it trains is not the job."""
    return sys.modules["torch"].utils.data.get_worker_info() is not None


def _device_memory() -> int:
    return int(sys.modules["torch"].cuda.max_memory_allocated())


def _process_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _place_of(error: Exception) -> str:
    """Return file and line where an error was raised; never its message, which may contain anything."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"


def _debug(error: Exception) -> None:
    if os.environ.get("LOSTFLOPS_DEBUG"):
        print(f"lostflops: {error!r} in {_place_of(error)}", file=sys.stderr)
