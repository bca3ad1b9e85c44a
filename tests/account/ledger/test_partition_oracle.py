"""The partition of small random traces, line by line against an oracle that walks every nanosecond."""

from collections import Counter
from dataclasses import replace
from functools import wraps
from itertools import product
from random import Random
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption
from tests.account.ledger import oracle
from tests.account.ledger.oracle import Oracle, Trace

from lostflops.account.facts.kernel_classes import op_class
from lostflops.account.ledger import gaps
from lostflops.account.ledger.accounts import Overlap, account
from lostflops.account.ledger.host_traits import traits
from lostflops.account.ledger.lines import BUSY_LINES, COMM_LINES, LINES
from lostflops.account.ledger.partition import partition
from lostflops.account.ledger.parts import direction
from lostflops.account.ledger.record import (
    KINDS,
    DeviceEvents,
    Formulas,
    Gloo,
    HostEvents,
    Numbered,
    Placed,
    RankCollectives,
    Record,
    RecordedSteps,
    Samples,
    _launches,
    records,
)
from lostflops.account.ledger.total import RunLedger
from lostflops.account.ledger.windows import WindowKind, window
from memory_run import MemoryRun

DATA = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
COMPILE = "_compile.compile_inner (dynamo_timed)"
ATEN = ("aten::mm", "aten::addmm", "aten::add_", "aten::copy_")
OPS = (
    *("SyncNorm", "CompiledFunctionBackward", "MmBackward0", "autograd::engine::evaluate_function: MmBackward0"),
    *("torch::autograd::AccumulateGrad", "c10d::allreduce_", "record_param_comms", "_c10d_functional::wait_tensor"),
    *(DATA, "Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad", "entire_frame_compile"),
)
ANNOTATIONS = ("forward", "loss", DATA, "Optimizer.step#SGD.step", COMPILE)
MODULES = ("", "layers.0", "layers.0.up", "head")
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpyAsync", "cudaGraphLaunch", "hipLaunchKernel")
OTHER_CALLS = ("cudaEventQuery", "cudaStreamIsCapturing", "cudaStreamWaitEvent")
KERNELS = ("volta_sgemm_128x64_tn", "vectorized_elementwise_kernel", "what", "pack_for_DtoH")
COPIES = (
    *("Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pageable -> Device)"),
    *("Memcpy HtoD (Pinned -> Device)", "CopyDeviceToHost"),
)
CALLED = ("all_gather", "reduce_scatter")
SKEW = 4
"""What the clocks of host and device differ by, in traces this short."""
THREADS = (0, 0, 0, 1, 2)
STREAMS = (10, 10, 11, 12)

CALL = ("runtime", (*LAUNCHES * 3, *oracle.BLOCKING, *oracle.ALLOCATING, *OTHER_CALLS))
OP = ("op", (*ATEN * 3, *OPS))
NOTE = ("annotation", (*ANNOTATIONS, DATA, COMPILE))
WORK = (
    ("kernel", KERNELS),
    ("kernel", KERNELS),
    ("memcpy", COPIES),
    ("comm", ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_SendRecv")),
    ("memset", ("Memset (Device)",)),
)


def examples(count):
    """Nothing is shrunk as bytes: `cut_down` knows what a trace is."""
    slow, phases = (HealthCheck.too_slow, HealthCheck.filter_too_much), (Phase.explicit, Phase.reuse, Phase.generate)
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=slow, phases=phases
    )


def cut_down(check):
    """Fail with a small trace: events are left out, moved to the front and made shorter while the check still fails."""

    @wraps(check)
    def checked(trace, **others):
        try:
            check(trace, **others)
        except AssertionError:
            small = trace
            while smaller := next((t for t in smaller_traces(small) if fails(check, t, **others)), None):
                small = smaller
            try:
                check(small, **others)
            except AssertionError as error:
                error.add_note("\n".join(str(event) for events in vars(small).values() for event in events))
                raise

    return checked


def fails(check, trace, **others):
    try:
        check(trace, **others)
    except AssertionError:
        return True
    except (ValueError, UnsatisfiedAssumption):  # there is nothing left to check
        return False
    return False


def smaller_traces(trace):
    for name, events in vars(trace).items():
        for i in range(len(events)):
            yield replace(trace, **{name: events[:i] + events[i + 1 :]})
    for name, events in vars(trace).items():
        for (i, event), less in product(enumerate(events), (16, 4, 1)):
            start, length = event.start, event.stop - event.start
            for begin, end in ((start - less, start - less + length), (start, event.stop - less)):
                if 0 <= begin <= end:
                    yield replace(
                        trace, **{name: (*events[:i], replace(event, start=begin, stop=end), *events[i + 1 :])}
                    )


class Dice:
    """Choices told by bytes: one draw for a whole trace is many times as fast as one for each of its numbers."""

    def __init__(self, told: bytes) -> None:
        self._told = iter(told)

    def __call__(self, sides: int) -> int:
        return next(self._told, 0) % sides

    def of(self, choices):
        return choices[self(len(choices))]

    def named(self, *kinds):
        kind, names = self.of(kinds)
        return kind, self.of(names)


def dice():
    return st.binary(min_size=200, max_size=300).map(Dice)


def program(throw, outer, inner):
    """Host and device events of threads that do one thing after another, with something inside it that may launch work.

    A call that blocks returns when the device has finished, and so may a copy through pageable memory.
    """
    host, device, now, free = [], [], Counter(), Counter()
    for number in range(3 + throw(9)):
        thread, (kind, name) = throw.of(THREADS), throw.named(*inner)
        begin = now[thread] + throw.of((0, 1, 2, 5, 15))
        start = begin + throw(4)
        stop = start + throw.of((0, 1, 2, 4, 10))
        waits, is_within = throw(3), throw(4)
        if name in oracle.BLOCKING and waits:
            stop = max([stop, *free.values()])
        for _ in range(1 + throw(4) // 3 if name in (*LAUNCHES, "cudaMemcpy") else 0):
            stream, delay, length = throw.of(STREAMS), throw.of((-2, 0, 1, 2, 3, 8)), throw.of((0, 1, 3, 6))
            first = max(0, free[stream], start + delay)
            done = oracle.Device(*throw.named(*WORK), stream, first, first + length, throw.of((number,) * 6 + (99,)))
            device.append(done)
            free[stream] = done.stop
            if done.is_pageable_copy and waits:
                stop = max(stop, done.stop)
        host.append(oracle.Host(kind, name, thread, start, stop, number if kind == "runtime" else -1))
        now[thread] = stop
        if is_within:
            now[thread] += throw(4)
            host.append(oracle.Host(*throw.named(*outer), thread, begin, now[thread]))
    return host, device


def strays(throw, kinds, lanes, latest):
    """Events of no program, anywhere."""
    for _ in range(throw(4)):
        start = throw(latest + 1)
        yield *throw.named(*kinds), throw.of(lanes), start, start + throw(6), throw(11) - 1


def nested(events):
    """Events of each lane cut so that one that starts in another also ends in it."""
    found, around = [], {}
    for event in sorted(events, key=lambda event: (event.start, -event.stop)):
        open_ones = [outer for outer in around.get(event.lane, []) if outer.stop > event.start]
        cut = replace(event, stop=min([event.stop, *(outer.stop for outer in open_ones)]))
        around[event.lane] = [*open_ones, cut]
        found.append(cut)
    return found


def training_steps(throw, latest):
    """Some of their numbers may be left out, and some may have no time."""
    lane, number, start, found = throw.of(THREADS), 3, 0, []
    for _ in range(throw(5)):
        number, start = number + throw.of((1, 1, 1, 2, 3)), start + throw(latest // 6 + 1)
        found.append(oracle.Step(number, lane, start, start + throw(latest // 2 + 1)))
        start = max(start + 1, found[-1].stop)
    return found


def gloo_events(throw, latest):
    starts = [throw(latest + 1) for _ in range(throw(5))]
    return waiting(throw, [oracle.Gloo(start, start + throw(20)) for start in starts])


def waiting(throw, works):
    """Some calls wait for others, up to the whole of them."""
    return [replace(work, wait=throw(work.stop - work.start + 1), is_transfer=throw(3) == 0) for work in works]


def device_trace(throw):
    host, device = program(throw, (OP, OP, NOTE), (CALL, CALL, CALL, OP, NOTE))
    latest = max(event.stop for event in host)
    for kind, name, lane, start, stop, link in strays(throw, (CALL, OP, NOTE), THREADS, latest):
        host.append(oracle.Host(kind, name, lane, start, stop, link if kind == "runtime" else -1))
    device += [oracle.Device(*event) for event in strays(throw, WORK, STREAMS, latest)]
    if not device:
        device = [oracle.Device("kernel", "what", 10, 0, 0)]
    device = [work if work.kind != "comm" else waiting(throw, [work])[0] for work in device]
    steps, gloo = training_steps(throw, latest), gloo_events(throw, latest)
    return Trace((*nested(host), *announced(steps)), tuple(device), tuple(steps), tuple(gloo))


def thread_trace(throw):
    host, _ = program(throw, (OP, OP, NOTE), (OP, NOTE))
    latest = max(event.stop for event in host)
    host += [oracle.Host(*event[:-1]) for event in strays(throw, (OP, NOTE), THREADS, latest)]
    steps, gloo = training_steps(throw, latest), gloo_events(throw, latest)
    return Trace((*nested(host), *announced(steps)), (), tuple(steps), tuple(gloo))


def device_traces():
    return dice().map(device_trace)


def thread_traces():
    return dice().map(thread_trace)


def announced(steps):
    """Steps as the annotations that they are on the host."""
    return [oracle.Host("annotation", f"ProfilerStep#{s.number}", s.lane, s.start, s.stop) for s in steps]


# --- the same trace as the ledger reads it -------------------------------------------------------------------------


def whole(values):
    return np.array(list(values), np.int64)


def step_of(trace, launch):
    return next((s.number for s in trace.steps if launch and s.start <= launch.start < s.stop), -1)


def annotation_of(trace, launch):
    """Innermost around the launch, steps aside."""
    around = [
        event
        for event in trace.host
        if launch and event.kind == "annotation" and event.lane == launch.lane
        if event.start <= launch.start < event.stop and not event.name.startswith("ProfilerStep#")
    ]
    return max(around, key=lambda event: (event.start, -event.stop)).name if around else ""


def record_of(trace: Trace) -> Record:
    names = sorted({(event.kind, event.name) for event in (*trace.host, *trace.device)})
    code = {name: i for i, name in enumerate(names)}
    notes = ["", *ANNOTATIONS]
    host = HostEvents(
        event=np.arange(len(trace.host)),
        lane=whole(event.lane for event in trace.host),
        start=whole(event.start for event in trace.host),
        stop=whole(event.stop for event in trace.host),
        name=whole(code[event.kind, event.name] for event in trace.host),
        traits=whole(traits(event.kind, event.name) for event in trace.host),
    )
    launches = _launches(
        whole(work.correlation for work in trace.device), host, whole(event.correlation for event in trace.host)
    )
    calls = [trace.host[row] if row >= 0 else None for row in launches.tolist()]
    first = 1_000
    device = DeviceEvents(
        event=first + np.arange(len(trace.device)),
        lane=whole(work.lane for work in trace.device),
        start=whole(work.start for work in trace.device),
        stop=whole(work.stop for work in trace.device),
        kind=whole(KINDS.index(work.kind) for work in trace.device),
        name=whole(code[work.kind, work.name] for work in trace.device),
        annotation=whole(notes.index(annotation_of(trace, call)) for call in calls),
        module=whole(MODULES.index(module_of(call)) for call in calls),
        step=whole(step_of(trace, call) for call in calls),
        launch=launches,
        occupancy=np.full(len(trace.device), -1.0),
    )
    edges = [device_edges(trace, step, calls) for step in trace.steps]
    comms = [first + i for i, work in enumerate(trace.device) if work.kind == "comm"]
    gloo = np.arange(2_000, 2_000 + len(trace.gloo))
    none = np.zeros(0, np.int64)
    return Record(
        rank=0,
        names=tuple(name for _, name in names),
        annotations=tuple(notes),
        modules=MODULES,
        host=host,
        device=device,
        steps=RecordedSteps(
            number=whole(step.number for step in trace.steps),
            lane=whole(step.lane for step in trace.steps),
            start=whole(step.start for step in trace.steps),
            stop=whole(step.stop for step in trace.steps),
            device_start=whole(start for start, _ in edges),
            device_stop=whole(stop for _, stop in edges),
        ),
        gloo=Gloo(
            gloo,
            whole(event.start for event in trace.gloo),
            whole(event.stop for event in trace.gloo),
            whole(event.stop for event in trace.gloo),
            np.arange(len(trace.gloo)) % len(MODULES),
        ),
        collectives=RankCollectives(
            event=whole([*comms, *gloo.tolist()]),
            group=whole([-(turn % 2) for turn in range(len(comms))] + [1] * len(gloo)),
            wait=whole(call.wait for call in calls_of(trace)),
            late=whole(turn % 3 for turn in range(len(comms) + len(gloo))),
            transfer=np.array([call.is_transfer for call in calls_of(trace)], np.bool_),
            groups=("a", "b"),
            op=whole(turn % 2 for turn in range(len(comms) + len(gloo))),
            ops=CALLED,
        ),
        formulas=Formulas(event=none, lane=none, start=none, stop=none, effort=none, efforts=()),
        numbered=Numbered(none, none, none, none),
        placed=placed_rows(trace),
        samples=Samples(none, none.astype(object)),
    )


def module_of(event):
    """Any module, or none, as the event gives it."""
    return MODULES[(event.start + len(event.name)) % len(MODULES)] if event else ""


def placed_events(trace):
    """Ops, and as calls of modules the annotations that are no steps; a device needs none."""
    placed = [event for event in trace.host if not event.is_call and not event.name.startswith("ProfilerStep#")]
    return [] if trace.device else placed


def placed_rows(trace):
    events = placed_events(trace)
    return Placed(
        whole(event.lane for event in events),
        whole(event.start for event in events),
        whole(event.stop for event in events),
        whole(MODULES.index(module_of(event)) for event in events),
    )


def calls_of(trace):
    return [*(work for work in trace.device if work.kind == "comm"), *trace.gloo]


def device_edges(trace, step, calls):
    own = [work for work, call in zip(trace.device, calls, strict=True) if step_of(trace, call) == step.number]
    return (min(work.start for work in own), max(work.stop for work in own)) if own else (-1, -1)


def ledger_of(trace, kind, only=(), skew=SKEW):
    record = record_of(trace)
    with patch.object(gaps, "CLOCK_SKEW", skew):
        return account(record, window(record, kind, only))


def nonzero(lines):
    return {line: ns for line, ns in lines.items() if ns}


def total(sums):
    return sum(sums, Counter())


def moved(trace, *, scale=1, shift=0):
    def move(events):
        return tuple(replace(e, start=e.start * scale + shift, stop=e.stop * scale + shift) for e in events)

    def wait(events):
        return tuple(replace(e, wait=e.wait * scale) for e in events)

    return Trace(move(trace.host), wait(move(trace.device)), move(trace.steps), wait(move(trace.gloo)))


# --- lines ----------------------------------------------------------------------------------------------------------


def check_lines(trace):
    whole_trace = ledger_of(trace, WindowKind.TRACE)
    assert nonzero(whole_trace.lines) == total(Oracle(trace, by_steps=False, skew=SKEW).lines().values())
    by_step = Oracle(trace, by_steps=True, skew=SKEW).lines()
    found = ledger_of(trace, WindowKind.STEPS)
    assert nonzero(found.lines) == total(by_step.values())
    assert {n: nonzero(own) for n, own in zip(found.window.number, found.steps, strict=True) if nonzero(own)} == by_step


@examples(300)
@given(device_traces())
@cut_down
def test_lines_of_a_device(trace):
    check_lines(trace)


@examples(120)
@given(thread_traces())
@cut_down
def test_lines_of_a_cpu_rank(trace):
    check_lines(trace)


def check_sums(ledger):
    """Every way in which the ledger is cut adds up to it."""
    wall = ledger.window.wall
    assert tuple(ledger.lines) == LINES
    assert sum(ledger.lines.values()) == wall
    cuts = [
        *ledger.phases.values(),
        *ledger.annotations.values(),
        *ledger.modules.values(),
        *ledger.steps,
        ledger.lines,
    ]
    assert all(ns >= 0 for cut in cuts for ns in cut.values())
    assert all(ns > 0 for part in ledger.parts.values() for ns in part.values())
    for line, part in ledger.parts.items():
        assert sum(part.values()) == ledger.lines[line], line
    for cut in (ledger.phases, ledger.annotations, ledger.modules):
        assert {line: sum(lines[line] for lines in cut.values()) for line in LINES} == ledger.lines
    if ledger.window.kind is WindowKind.STEPS:
        assert {line: sum(own[line] for own in ledger.steps) for line in LINES} == ledger.lines
        assert [sum(own.values()) for own in ledger.steps] == (ledger.window.stop - ledger.window.start).tolist()
    assert sum(ledger.lines[line] for line in COMM_LINES) == ledger.overlap.exposed
    check_together(ledger)


def check_together(ledger):
    """What ran at once closes with the lines."""

    def having(wanted):
        return sum(ns for names, ns in ledger.together.items() if wanted(set(names)))

    assert having(lambda names: "compute" in names) == ledger.lines["compute"]
    assert having(lambda names: names & set(CALLED)) == ledger.overlap.comm
    assert having(lambda names: names & set(CALLED) and "compute" in names) == ledger.overlap.hidden
    assert having(lambda names: names <= {"copy"}) == ledger.lines["copy"]
    assert sum(ledger.together.values()) == sum(ledger.lines[line] for line in BUSY_LINES)


@examples(80)
@given(device_traces(), st.sampled_from(WindowKind))
@cut_down
def test_what_runs_at_once(trace, kind):
    expected, found = Oracle(trace, by_steps=kind is WindowKind.STEPS, skew=SKEW), ledger_of(trace, kind)
    seen = Counter()
    for time in expected.window():
        running = [work for work in trace.device if work.start <= time < work.stop]
        turns = [turn for turn, work in enumerate(calls_of(trace)) if work in running]
        names = {
            *("compute" for work in running if work.kind == "kernel"),
            *(CALLED[turn % 2] for turn in turns),
            *("copy" for work in running if work.kind in ("memcpy", "memset")),
        }
        seen[tuple(name for name in ("compute", *CALLED, "copy") if name in names)] += 1
    del seen[()]
    assert found.together == seen
    check_together(found)


@examples(80)
@given(st.one_of(device_traces(), thread_traces()), st.sampled_from(WindowKind))
@cut_down
def test_everything_adds_up(trace, kind):
    check_sums(ledger_of(trace, kind))


@examples(80)
@given(device_traces(), st.sampled_from(WindowKind))
@cut_down
def test_parts_of_a_device(trace, kind):
    expected = Oracle(trace, by_steps=kind is WindowKind.STEPS, skew=SKEW)
    by_line = {line: [t for t in expected.window() if expected.line(t) == line] for line in LINES}
    ledger = ledger_of(trace, kind)

    def first_started(kinds, time):
        return min((w for w in oracle.at(trace.device, time) if w.kind in kinds), key=lambda work: work.start)

    copies = Counter(direction(first_started(("memcpy", "memset"), t).name) for t in by_line["copy"])
    assert ledger.parts["copy"] == copies
    assert ledger.parts["idle.alloc"] == Counter(expected.allocation(t) for t in by_line["idle.alloc"])
    assert ledger.parts["idle.host"] == Counter(expected.part_of_host(t) for t in by_line["idle.host"])
    assert ledger.parts["idle.python"] == Counter(expected.annotation(t) for t in by_line["idle.python"])
    hidden = [t for t in expected.window() if {"kernel", "comm"} <= {w.kind for w in oracle.at(trace.device, t)}]
    comm = [t for t in expected.window() if any(w.kind == "comm" for w in oracle.at(trace.device, t))]
    assert ledger.overlap == Overlap(len(by_line["compute"]), len(comm), len(hidden))


@examples(50)
@given(thread_traces(), st.integers(0, 99))
@cut_down
def test_parts_of_a_cpu_rank(trace, seed):
    """Of ops inside each other the outermost has the time, in whatever order they are recorded."""
    trace = replace(trace, host=tuple(Random(seed).sample(trace.host, len(trace.host))))
    expected = Oracle(trace, by_steps=False)
    by_line = {line: [t for t in expected.window() if expected.line(t) == line] for line in LINES}

    def outermost(time):
        return op_class(min(expected.computing(time), key=lambda op: (op.start, -op.stop)).name)

    parts = ledger_of(trace, WindowKind.TRACE).parts
    for line in ("comm.wait", "comm.bubble"):
        assert sum(parts.pop(line).values()) == len(by_line[line])
    assert parts == {
        "compute": Counter(map(outermost, by_line["compute"])),
        "comm.transfer": Counter("b" for _ in by_line["comm.transfer"]),
        "idle.host": Counter("op dispatch" for _ in by_line["idle.host"]),
        "idle.python": Counter(expected.annotation(t) for t in by_line["idle.python"]),
    }


@examples(80)
@given(device_traces())
@cut_down
def test_what_blocked_had_blocked(trace):
    """What `idle.sync` is charged to was called before the gap, and nothing was launched since it returned."""
    expected = Oracle(trace, by_steps=False, skew=SKEW)
    record = record_of(trace)
    with patch.object(gaps, "CLOCK_SKEW", SKEW):
        made = partition(record, window(record, WindowKind.TRACE))
    ns = made.lines["idle.sync"].within(made.gaps.start, made.gaps.stop)
    for i in np.flatnonzero(ns).tolist():
        gap = oracle.Gap(int(made.gaps.start[i]), int(made.gaps.stop[i]))
        assert trace.host[made.gaps.blocker[i]] in expected.blockers(gap, gap.start)


# --- what must not matter -------------------------------------------------------------------------------------------


@examples(40)
@given(st.one_of(device_traces(), thread_traces()), st.integers(2, 1_000), st.sampled_from(WindowKind))
@cut_down
def test_times_that_are_k_times_as_long_give_k_times_the_lines(trace, k, kind):
    once, scaled = ledger_of(trace, kind), ledger_of(moved(trace, scale=k), kind, skew=k * SKEW)
    assert scaled.lines == {line: k * ns for line, ns in once.lines.items()}
    assert scaled.parts == {line: {name: k * ns for name, ns in part.items()} for line, part in once.parts.items()}
    assert scaled.phases == {p: {line: k * ns for line, ns in own.items()} for p, own in once.phases.items()}


@examples(40)
@given(
    st.one_of(device_traces(), thread_traces()),
    st.sampled_from((1, 77, 1_700_000_000_000_000_000)),
    st.sampled_from(WindowKind),
)
@cut_down
def test_a_clock_that_reads_later_changes_nothing(trace, shift, kind):
    before, after = ledger_of(trace, kind), ledger_of(moved(trace, shift=shift), kind)
    for name in ("lines", "parts", "steps", "phases", "annotations", "overlap", "groups", "longest"):
        assert getattr(before, name) == getattr(after, name)


@examples(40)
@given(st.one_of(device_traces(), thread_traces()), st.integers(0, 99), st.sampled_from(WindowKind))
@cut_down
def test_the_order_of_rows_does_not_matter(trace, seed, kind):
    """But where calls begin at once: which of them is the first, nothing tells."""
    calls = [event.start for event in trace.host if event.is_call]
    assume(len(set(calls)) == len(calls))
    shuffle = Random(seed).sample
    host, device, gloo = (tuple(shuffle(rows, len(rows))) for rows in (trace.host, trace.device, trace.gloo))
    shuffled = Trace(host, device, trace.steps, gloo)
    assert ledger_of(trace, kind).lines == ledger_of(shuffled, kind).lines


@examples(40)
@given(st.one_of(device_traces(), thread_traces()))
@cut_down
def test_a_step_alone_is_the_step_among_others(trace):
    together = ledger_of(trace, WindowKind.STEPS)
    for number, lines in zip(together.window.number, together.steps, strict=True):
        alone = ledger_of(trace, WindowKind.STEPS, [number])
        assert (alone.window.number, alone.lines) == ((number,), lines)


@examples(20)
@given(st.lists(st.one_of(device_traces(), thread_traces()), max_size=3), st.sampled_from(WindowKind))
def test_a_run_is_the_sum_of_its_ranks(traces, kind):
    ledgers = [replace(ledger_of(trace, kind), rank=rank) for rank, trace in enumerate(traces)]
    run = RunLedger.of(ledgers)
    assert run.lines == {line: sum(ledger.lines[line] for ledger in ledgers) for line in LINES}
    assert run.total_ns == sum(run.lines.values()) == sum(ledger.window.wall for ledger in ledgers)
    assert [rank.rank for rank in run.ranks] == list(range(len(traces)))
    for line, part in run.parts.items():
        assert part == total(Counter(ledger.parts.get(line, {})) for ledger in ledgers)
    for cut in (run.phases, run.annotations):
        assert {line: sum(lines[line] for lines in cut.values()) for line in LINES} == run.lines
    assert run.step_count == sum(len(ledger.steps) for ledger in ledgers)
    assert run.hidden == run.comm - sum(run.lines[line] for line in COMM_LINES)


# --- read from tables -----------------------------------------------------------------------------------------------


def tables_of(trace):
    record = record_of(trace)
    events = [
        {"lane": e.lane, "kind": e.kind, "name": e.name, "start": e.start, "dur": e.stop - e.start}
        | ({"correlation": e.correlation} if e.correlation >= 0 else {"correlation": 1} if e.kind == "op" else {})
        for e in (*trace.host, *trace.device)
    ]
    for event, note, step in zip(
        events[len(trace.host) :], record.device.annotation.tolist(), record.device.step.tolist(), strict=True
    ):
        event |= {"annotation": record.annotations[note] or None, "step": step if step >= 0 else None}
    events += [
        {"lane": 90, "kind": "host_comm", "name": "gloo:all_reduce", "start": e.start, "dur": e.stop - e.start}
        for e in trace.gloo
    ]
    numbers = [i for i, event in enumerate(events) if event["kind"] in ("comm", "host_comm")]
    calls = list(zip(numbers, calls_of(trace), strict=True))
    steps = [
        {"step": s.number, "lane": s.lane, "start": s.start, "stop": s.stop}
        | ({"device_start": start, "device_stop": stop} if start >= 0 else {})
        for s, start, stop in zip(
            trace.steps, record.steps.device_start.tolist(), record.steps.device_stop.tolist(), strict=True
        )
    ]
    return MemoryRun(
        ranks=[{"rank": 0, "events": len(events)}],
        events=[{"rank": 0, "event": i, **event} for i, event in enumerate(events)],
        steps=[{"rank": 0, **step} for step in steps],
        collectives=[{"rank": 0, "event": i, "op": "send" if call.is_transfer else "barrier"} for i, call in calls],
        arrivals=[
            {"rank": 0, "event": i, "wait": call.wait, "late_rank": turn % 3} for turn, (i, call) in enumerate(calls)
        ],
    )


@examples(8)
@given(st.one_of(device_traces(), thread_traces()), st.sampled_from(WindowKind))
@cut_down
def test_tables_tell_the_same(trace, kind):
    assume(trace.host or trace.device)
    with tables_of(trace) as run:
        (record,) = records(run, [0])
    with patch.object(gaps, "CLOCK_SKEW", SKEW):
        ledger, expected = account(record, window(record, kind)), ledger_of(trace, kind)
    for name in ("lines", "steps", "phases", "annotations", "overlap"):
        assert getattr(ledger, name) == getattr(expected, name)
    assert {**ledger.parts, "comm.transfer": {}} == {**expected.parts, "comm.transfer": {}}
