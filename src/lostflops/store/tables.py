"""The tables of a run, declared once: name, type, unit and meaning of every column.

Writers, validation and docs/reference/tables.md all come from here. This module knows
nothing about files or formats.
"""

from dataclasses import dataclass

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    doc: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    doc: str
    columns: tuple[Column, ...]

    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_RANK = Column("rank", "INTEGER", "Global rank of the process.")

RANKS = Table(
    "ranks",
    "One row per rank that was ingested.",
    (
        _RANK,
        Column("rank_source", "VARCHAR", "Where the rank comes from: `recorded`, `file name` or `assigned`."),
        Column("host", "VARCHAR", "Host name where it is known; ranks of one host share a clock."),
        Column("device", "VARCHAR", "Name of the accelerator, as the trace gives it; null on a CPU rank."),
        Column("device_index", "INTEGER", "Index of the accelerator on its host."),
        Column("world_size", "INTEGER", "Number of ranks in the job; null when not recorded."),
        Column("backend", "VARCHAR", "Backend of the default process group, e.g. `nccl`, `gloo`."),
        Column(
            "formats", "VARCHAR", "Formats this rank was read from, e.g. `kineto`, `nsys`, `kineto,flight_recorder`."
        ),
        Column("source", "VARCHAR", "File that the rank's timeline was read from."),
        Column("source_bytes", "BIGINT", "Size of that file on disk.", "bytes"),
        Column("source_hash", "VARCHAR", "SHA-256 of that file's bytes on disk."),
        Column("base_time", "BIGINT", "Time that the file's own stamps count from; already added.", "ns"),
        Column("events", "BIGINT", "Rows of this rank in `events`."),
    ),
)

LANES = Table(
    "lanes",
    "A lane is what runs one thing at a time: a host thread or a device stream.",
    (
        _RANK,
        Column("lane", "INTEGER", "Number of the lane, unique within the rank."),
        Column("kind", "VARCHAR", "`thread` or `stream`."),
        Column("process", "BIGINT", "Process id; null for streams."),
        Column("thread", "BIGINT", "Thread id; null for streams."),
        Column("device", "INTEGER", "Device index; null for threads."),
        Column("stream", "BIGINT", "Stream id; null for threads."),
        Column("name", "VARCHAR", "Name that the trace gives the lane, where it does."),
    ),
)

EVENTS = Table(
    "events",
    "Every timed event of every rank.",
    (
        _RANK,
        Column("event", "BIGINT", "Number of the event, unique within the rank."),
        Column("lane", "INTEGER", "Lane it ran on; see `lanes`."),
        Column(
            "kind",
            "VARCHAR",
            "On the host `op`, `annotation`, `module` (a call of a module that the collector annotated), `python`, "
            "`runtime`, `host_comm` (a `gloo:*` event), `overhead`, `span` (what the profiler recorded), `other`; on a "
            "device `kernel`, `comm` (a communication kernel), `memcpy`, `memset`, `sync`, `device_annotation`.",
        ),
        Column("name", "VARCHAR", "Name as recorded."),
        Column("start", "BIGINT", "Start, Unix time by the clock of the rank's host.", "ns"),
        Column("dur", "BIGINT", "Duration; the event ends at start + dur.", "ns"),
        Column("correlation", "BIGINT", "Links a runtime call to the device events that it launched."),
        Column("external_id", "BIGINT", "Links runtime calls and device events to the op around the launch."),
        Column(
            "step",
            "INTEGER",
            "Training step: on the host the `ProfilerStep` running at its start, on a device that of its launch; "
            "null outside steps and for device events without a recorded launch.",
        ),
        Column(
            "annotation",
            "VARCHAR",
            "Innermost user annotation around it, steps aside: on the same thread, or around its launch.",
        ),
        Column(
            "module",
            "VARCHAR",
            "Qualified name of the innermost module around it, where the collector annotated modules: of a backward op "
            "that of its forward op, of a device event that of its launch.",
        ),
        Column("source", "VARCHAR", "Source line, as `file.py(12): function`, where recorded."),
        Column("sequence", "BIGINT", "Autograd sequence number: a backward op carries that of its forward op."),
        Column("forward_thread", "INTEGER", "Autograd's number of the thread that ran the forward op."),
        Column("shapes", "VARCHAR", "Shapes of an op's inputs, as the JSON text of the trace."),
        Column("dtypes", "VARCHAR", "Types of an op's inputs, as the JSON text of the trace."),
        Column("inputs", "VARCHAR", "Scalar inputs of an op, as the JSON text of the trace."),
        Column("bytes", "BIGINT", "Bytes copied or set.", "bytes"),
        Column("grid_x", "INTEGER", "Blocks of a kernel's grid along x."),
        Column("grid_y", "INTEGER", "Blocks of a kernel's grid along y."),
        Column("grid_z", "INTEGER", "Blocks of a kernel's grid along z."),
        Column("block_x", "INTEGER", "Threads of a kernel's block along x."),
        Column("block_y", "INTEGER", "Threads of a kernel's block along y."),
        Column("block_z", "INTEGER", "Threads of a kernel's block along z."),
        Column("registers", "INTEGER", "Registers per thread."),
        Column("shared_memory", "INTEGER", "Shared memory per block.", "bytes"),
        Column("occupancy", "DOUBLE", "Achieved occupancy as estimated by the profiler.", "%"),
        Column("wait_stream", "BIGINT", "Stream that a `sync` event waited on."),
        Column("wait_correlation", "BIGINT", "Correlation of the event record that a `sync` event waited on."),
    ),
)

STEPS = Table(
    "steps",
    "Training steps, one row per rank and step.",
    (
        _RANK,
        Column("step", "INTEGER", "Number of the step as the profiler counts it."),
        Column("lane", "INTEGER", "Thread that runs the training loop; without a host, the stream that computes."),
        Column("start", "BIGINT", "Start of `ProfilerStep#k` on the host, else as the source has it.", "ns"),
        Column("stop", "BIGINT", "End of `ProfilerStep#k` on the host, else as the source has it.", "ns"),
        Column(
            "device_start",
            "BIGINT",
            "Start of the first device event launched in the step, or of the step.",
            "ns",
        ),
        Column(
            "device_stop",
            "BIGINT",
            "End of the last device event launched in the step, or of the step.",
            "ns",
        ),
    ),
)

GROUPS = Table(
    "groups",
    "Membership in process groups: one row per group and ingested rank.",
    (
        Column(
            "group_id", "VARCHAR", "Name and members of the group, e.g. `0@0-7`, `12@1-7/2`; the same on every rank."
        ),
        _RANK,
        Column("position", "INTEGER", "Rank within the group; null when not recorded."),
        Column("size", "INTEGER", "Number of members, ingested or not."),
        Column("name", "VARCHAR", "Name that PyTorch gives the group."),
        Column("description", "VARCHAR", "Description that the program gave the group."),
        Column("backend", "VARCHAR", "Backend of the group."),
    ),
)

COLLECTIVES = Table(
    "collectives",
    "One row per collective or point-to-point transfer and rank.",
    (
        _RANK,
        Column("event", "BIGINT", "Its row in `events`."),
        Column("group_id", "VARCHAR", "Process group; null when the trace does not tell."),
        Column("group_size", "INTEGER", "Members of the group."),
        Column("seq", "BIGINT", "Sequence number within the group as recorded; null when there is none."),
        Column(
            "ordinal", "INTEGER", "0, 1, 2, ... in order of start, per group (per lane where the group is unknown)."
        ),
        Column(
            "order_source",
            "VARCHAR",
            "What tells the order: `seq`, `flight_recorder`, `group ordinal` or `lane ordinal`.",
        ),
        Column("op", "VARCHAR", "`all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `send`, ..."),
        Column("dtype", "VARCHAR", "Element type, as recorded."),
        Column("bytes_in", "BIGINT", "Size of this rank's input.", "bytes"),
        Column("bytes_out", "BIGINT", "Size of this rank's output.", "bytes"),
        Column("peer", "INTEGER", "Other rank of a point-to-point transfer."),
        Column("start", "BIGINT", "Start by the clock of the rank's host.", "ns"),
        Column("stop", "BIGINT", "End by the clock of the rank's host.", "ns"),
        Column("lane", "INTEGER", "Stream, or the thread that runs a gloo collective."),
        Column("step", "INTEGER", "Training step, as in `events`."),
        Column(
            "metadata",
            "VARCHAR",
            "Where op, group and sizes come from: `kernel`, `record_param_comms`, `gloo`, `nvtx` (ranges of PyTorch "
            "and NCCL around the launch), `op_trace` (type of the op and place of the rank), or `name` (guessed from "
            "the kernel's name).",
        ),
    ),
)

MEMORY = Table(
    "memory",
    "Allocations and frees.",
    (
        _RANK,
        Column("time", "BIGINT", "When it happened.", "ns"),
        Column("lane", "INTEGER", "Thread that allocated or freed."),
        Column("step", "INTEGER", "Training step, as in `events`."),
        Column("device_type", "INTEGER", "0 is the CPU, 1 CUDA, 6 ROCm (some versions say 1), as in PyTorch."),
        Column("device_index", "INTEGER", "Index of the device; -1 on the CPU."),
        Column("address", "BIGINT", "Address of the block."),
        Column("bytes", "BIGINT", "Positive for an allocation, negative for a free.", "bytes"),
        Column("allocated", "BIGINT", "Allocator's total after it.", "bytes"),
        Column("reserved", "BIGINT", "Reserved by the allocator after it.", "bytes"),
        Column("line", "VARCHAR", "Innermost line of the program that allocated, where a snapshot's history tells."),
    ),
)

HOLDINGS = Table(
    "holdings",
    "Memory whose owner the collector saw while a deep window with memory was open.",
    (
        _RANK,
        Column("time", "BIGINT", "When it was seen there first.", "ns"),
        Column("gone", "BIGINT", "When it was first seen to be gone; null where it never was.", "ns"),
        Column("before", "BOOLEAN", "It was there when the window opened."),
        Column("device_type", "INTEGER", "As in `memory`."),
        Column("device_index", "INTEGER", "As in `memory`."),
        Column("address", "BIGINT", "Address of the storage, as in `memory`."),
        Column("bytes", "BIGINT", "Size of the storage.", "bytes"),
        Column("owner", "VARCHAR", "`parameters`, `gradients`, `optimizer_state`, `buffers`, `batches`; else null."),
        Column("name", "VARCHAR", "Of the parameter or buffer, else of what holds the tensor, such as a list."),
        Column("line", "VARCHAR", "Source line that keeps it, as `file.py:12`, where that was found."),
    ),
)

ALLOCATOR_BLOCKS = Table(
    "allocator_blocks",
    "Blocks of a device's caching allocator as a snapshot found them (`torch.cuda.memory._dump_snapshot`).",
    (
        _RANK,
        Column("device_type", "INTEGER", "As in `memory`."),
        Column("device_index", "INTEGER", "As in `memory`."),
        Column("segment", "BIGINT", "Address of the segment, the piece that the allocator got from the device."),
        Column("segment_bytes", "BIGINT", "Size of the segment.", "bytes"),
        Column("expandable", "BOOLEAN", "The segment can grow and shrink (`expandable_segments:True`)."),
        Column("stream", "BIGINT", "Stream that the segment serves; 0 is the default one."),
        Column("pool", "VARCHAR", "`small` or `large`; of a private pool, such as a CUDA graph's, as `large (0, 1)`."),
        Column("address", "BIGINT", "Address of the block."),
        Column("bytes", "BIGINT", "Size of the block.", "bytes"),
        Column("requested", "BIGINT", "What was asked for; the allocator rounds up. Null where it is free.", "bytes"),
        Column("state", "VARCHAR", "`allocated`, `pending` (freed, but another stream may still use it) or `free`."),
        Column("line", "VARCHAR", "Innermost line of the program that allocated it, as `file.py:12`; null if unknown."),
        Column("stack", "VARCHAR", "Frames of the allocation from the outermost, as in `samples`."),
    ),
)

LINKS = Table(
    "links",
    "Forward op to backward op, as the trace's `fwdbwd` arrows give it.",
    (
        _RANK,
        Column("from_lane", "INTEGER", "Thread of the forward op."),
        Column("from_start", "BIGINT", "Start of the forward op.", "ns"),
        Column("to_lane", "INTEGER", "Thread of the backward op."),
        Column("to_start", "BIGINT", "Start of the backward op.", "ns"),
    ),
)

FLIGHT = Table(
    "flight",
    "Entries of c10d Flight Recorder dumps: what each rank enqueued, and how far it got.",
    (
        _RANK,
        Column("record", "BIGINT", "Number of the entry in the ring."),
        Column("group_id", "VARCHAR", "Process group; see `groups`."),
        Column("group_name", "VARCHAR", "Name that PyTorch gives the group."),
        Column("seq", "BIGINT", "Sequence number of a collective within its group."),
        Column("p2p_seq", "BIGINT", "Sequence number of a point-to-point transfer within its group."),
        Column("op_id", "BIGINT", "Number of the operation, counting those of a coalesced call apart."),
        Column("op", "VARCHAR", "Operation, named as in `collectives`."),
        Column("name", "VARCHAR", "Operation as recorded, e.g. `nccl:all_reduce`."),
        Column("is_p2p", "BOOLEAN", "A point-to-point transfer."),
        Column("state", "VARCHAR", "`scheduled`, `started` or `completed`."),
        Column("created", "BIGINT", "Enqueued by the host.", "ns"),
        Column("started", "BIGINT", "Seen to have started.", "ns"),
        Column("completed", "BIGINT", "Seen to have completed.", "ns"),
        Column("dtype", "VARCHAR", "Element types of the inputs, as recorded."),
        Column("bytes_in", "BIGINT", "Size of the inputs.", "bytes"),
        Column("bytes_out", "BIGINT", "Size of the outputs.", "bytes"),
        Column("in_shapes", "VARCHAR", "Shapes of the inputs as JSON."),
        Column("out_shapes", "VARCHAR", "Shapes of the outputs as JSON."),
        Column("source", "VARCHAR", "Innermost source line of the call."),
    ),
)

PASSES = Table(
    "passes",
    "Forward and backward passes of microbatches, where a source tells them apart.",
    (
        _RANK,
        Column("step", "INTEGER", "Training step."),
        Column("microbatch", "INTEGER", "Number of the microbatch within the step, from 0."),
        Column("chunk", "INTEGER", "Model chunk of an interleaved schedule on this rank, from 0."),
        Column("stage", "INTEGER", "Pipeline stage of the rank, from 0."),
        Column("direction", "VARCHAR", "`forward` or `backward`."),
        Column("start", "BIGINT", "Start by the clock of the rank's host.", "ns"),
        Column("stop", "BIGINT", "End by the clock of the rank's host.", "ns"),
    ),
)

CLOCKS = Table(
    "clocks",
    "How the clock of each rank stands against the reference rank's, as collectives tell it.",
    (
        _RANK,
        Column("reference", "INTEGER", "Rank whose clock is the common one."),
        Column(
            "method",
            "VARCHAR",
            "`reference`, `same host`, `collectives`, or why there is no offset: `untied` (no collective ties the rank "
            "to the reference) or `contradictory` (no offset satisfies all of them).",
        ),
        Column("correction", "BIGINT", "Add it to the rank's stamps to get the reference's, at `instant`.", "ns"),
        Column("uncertainty", "BIGINT", "The true offset is certainly no further than this from `correction`.", "ns"),
        Column("drift", "DOUBLE", "By how much the correction grows with the rank's time.", "ppm"),
        Column(
            "spread", "BIGINT", "How far the ends of its collectives typically lie from those of other ranks.", "ns"
        ),
        Column("instant", "BIGINT", "When `correction` holds: the middle of the run, on the reference's clock.", "ns"),
        Column("constraints", "BIGINT", "Collectives and transfers of the rank that bound its offset."),
        Column("matched", "BIGINT", "Collectives and transfers of the rank that were found on other ranks too."),
        Column("unmatched", "BIGINT", "Those of groups with other ranks in the run that were found on none."),
    ),
)

ARRIVALS = Table(
    "arrivals",
    "Who met in each collective or transfer, when each rank arrived, how long it waited, and for whom.",
    (
        _RANK,
        Column(
            "event",
            "BIGINT",
            "Its row in `events` and `collectives`; null for a member whose record of the meeting is missing.",
        ),
        Column("meeting", "BIGINT", "Number of the collective or transfer: the same on all its ranks."),
        Column("is_transfer", "BOOLEAN", "A point-to-point transfer; its two ends meet."),
        Column("step", "INTEGER", "Training step that the meeting belongs to."),
        Column("expected", "INTEGER", "Members of the group; null where it is not known."),
        Column("seen", "INTEGER", "Ranks whose record of it was found."),
        Column("arrived", "BIGINT", "Start on the reference's clock; null for ranks that nothing ties to it.", "ns"),
        Column("wait", "BIGINT", "From its start until the last one seen arrived; 0 below what can be told.", "ns"),
        Column("late_rank", "INTEGER", "The last one seen to arrive, where somebody waited for it."),
        Column(
            "basis",
            "VARCHAR",
            "What the wait rests on: `clock` (arrivals on the common clock), `ends` (the same, but it is shorter than "
            "the clocks are certain to: it rests on collectives ending everywhere at once) or `shortest` (what the "
            "call took longer than the shortest on any rank).",
        ),
    ),
)

_ATTEMPT = Column("attempt", "INTEGER", "Number of the attempt, from 0; see `attempts`.")

ATTEMPTS = Table(
    "attempts",
    "Attempts of a job that the collector recorded: an elastic restart, or a job that is started again, begins one.",
    (
        _RANK,
        _ATTEMPT,
        Column("session", "VARCHAR", "Identifies the process that was this rank in this attempt."),
        Column("host", "VARCHAR", "Host that it ran on."),
        Column("world_size", "INTEGER", "Ranks of the attempt."),
        Column("local_rank", "INTEGER", "Place of the rank on its host."),
        Column(
            "restart", "INTEGER", "Restarts before it, as torchrun counts them on each host: after failures there only."
        ),
        Column("start", "BIGINT", "When the collector began, by the clock of the rank's host.", "ns"),
        Column("stop", "BIGINT", "When the last record was made.", "ns"),
        Column("ended", "BOOLEAN", "The process ended on its own; false where it was killed or still runs."),
        Column("records", "BIGINT", "Records that arrived."),
        Column("dropped", "BIGINT", "Records that the collector lost: its ring was full, or a write failed."),
    ),
)

TIMINGS = Table(
    "timings",
    "Every training step as the collector's hooks saw it on the training thread, profiled or not.",
    (
        _RANK,
        _ATTEMPT,
        Column("step", "INTEGER", "Number of the step, from 0: an optimizer's step, or what `lostflops.step()` ends."),
        Column("start", "BIGINT", "Start, by the clock of the rank's host.", "ns"),
        Column("stop", "BIGINT", "End; the next step begins there.", "ns"),
        Column("data", "BIGINT", "Waiting for the next batch; null where the collector had given phases up.", "ns"),
        Column(
            "forward",
            "BIGINT",
            "From the outermost module's call to the backward pass; null where calls were not seen.",
            "ns",
        ),
        Column("backward", "BIGINT", "Inside backward passes; null where the collector had given phases up.", "ns"),
        Column("optimizer", "BIGINT", "Inside the optimizers' steps.", "ns"),
        Column("outside", "BIGINT", "The rest: stop - start less the four before; null where one of them is.", "ns"),
        Column("device_time", "BIGINT", "From edge to edge on the accelerator, by its events; null on a CPU.", "ns"),
        *(
            Column(f"device_{phase}", "BIGINT", f"Of that, between the events around the {what}.", "ns")
            for phase, what in (
                ("data", "wait for a batch"),
                ("forward", "forward pass"),
                ("backward", "backward pass"),
                ("optimizer", "optimizers' steps"),
            )
        ),
        Column("microbatches", "INTEGER", "Backward passes in the step."),
        Column("samples", "BIGINT", "Samples of its batches, where their first dimension shows them."),
        Column("tokens", "BIGINT", "Tokens of its batches, where they hold token ids."),
        Column(
            "peak_memory",
            "BIGINT",
            "Most memory that was allocated so far: the device's, on a CPU the process's.",
            "bytes",
        ),
        Column("own", "BIGINT", "Time that the collector took on the training thread.", "ns"),
        Column(
            "gc", "BIGINT", "In Python's garbage collector on that thread; null where the collector is older.", "ns"
        ),
        Column("gc_count", "INTEGER", "Collections of garbage in the step."),
        Column("cpu", "BIGINT", "Time of the training thread on a core; null where the kernel does not say.", "ns"),
        Column("queued", "BIGINT", "Time that it could run and waited for a core.", "ns"),
        Column("system", "BIGINT", "Part of `cpu` inside the kernel of the operating system.", "ns"),
        Column("faults", "BIGINT", "Its page faults that needed no disk."),
        Column("preempted", "BIGINT", "Times that a core was taken from it."),
        Column("saving", "BIGINT", "In `torch.save` and other functions that write checkpoints, on that thread.", "ns"),
        Column(
            "evaluating",
            "BIGINT",
            "From the first to the last forward pass without gradients in the step.",
            "ns",
        ),
        Column("skipped", "BOOLEAN", "The update was skipped because gradients were not finite."),
        Column("compiled", "BOOLEAN", "Something was compiled in it."),
        Column("profiled", "BOOLEAN", "A deep window was recorded over it, or being prepared or ended in it."),
    ),
)

ENQUEUES = Table(
    "enqueues",
    "When each rank enqueued each collective on its host, as the c10d Flight Recorder's ring tells.",
    (
        _RANK,
        _ATTEMPT,
        Column("record", "BIGINT", "Number of the entry in the ring."),
        Column("group_id", "VARCHAR", "Process group; see `groups`."),
        Column("seq", "BIGINT", "Sequence number within the group, of collectives and of transfers each."),
        Column("op", "VARCHAR", "Operation, named as in `collectives`."),
        Column("name", "VARCHAR", "Operation as recorded, e.g. `gloo:all_reduce`."),
        Column("is_p2p", "BOOLEAN", "A point-to-point transfer."),
        Column("bytes_in", "BIGINT", "Size of the inputs.", "bytes"),
        Column("bytes_out", "BIGINT", "Size of the outputs.", "bytes"),
        Column(
            "created",
            "BIGINT",
            "When the host enqueued it. An accelerator takes it up later, so it shows a late host, never a wait.",
            "ns",
        ),
    ),
)

PARAMETERS = Table(
    "parameters",
    "Parameters of the trained model, in the order in which the model gives them.",
    (
        _RANK,
        Column("position", "INTEGER", "0, 1, 2, ... in the order of the model."),
        Column("name", "VARCHAR", "Qualified name."),
        Column("module", "VARCHAR", "Class of the module that holds it."),
        Column("shape", "VARCHAR", "Whole shape as JSON, also where this rank holds a shard."),
        Column("local_shape", "VARCHAR", "Shape of what this rank holds, as JSON."),
        Column("dtype", "VARCHAR", "Element type."),
        Column("bytes", "BIGINT", "Size of what this rank holds.", "bytes"),
        Column("trainable", "BOOLEAN", "It requires a gradient."),
        Column("bucket", "INTEGER", "DDP bucket that reduces its gradient; null elsewhere."),
        Column("unit", "VARCHAR", "Qualified name of the FSDP unit that gathers it; null elsewhere."),
    ),
)

JOB = Table(
    "job",
    "What the collector read once per attempt: versions, settings on its list, process groups, buckets, units, mesh.",
    (
        _RANK,
        _ATTEMPT,
        Column("key", "VARCHAR", "What it is, e.g. `torch`, `environment`, `ddp`, `fsdp`, `mesh`."),
        Column("value", "VARCHAR", "Its value as JSON."),
    ),
)

CLOCK_SAMPLES = Table(
    "clock_samples",
    "Readings of clocks: a rank's own two, and wall clocks that travelled through the job's store.",
    (
        _RANK,
        Column("wall", "BIGINT", "Unix time of the rank's host.", "ns"),
        Column("monotonic", "BIGINT", "Its monotonic clock at the same moment.", "ns"),
        Column("peer", "INTEGER", "Rank whose reading arrived at that moment; null for a reading of its own."),
        Column("peer_wall", "BIGINT", "What that rank's clock showed when it sent: it was then, or earlier.", "ns"),
    ),
)

SAMPLES = Table(
    "samples",
    "Python stacks of the training thread, about 100 a second while a deep window was open.",
    (
        _RANK,
        Column("time", "BIGINT", "When the stack was read, by the clock of the rank's host.", "ns"),
        Column("stack", "VARCHAR", "Frames from the outermost, as `function file.py:12`, joined by `;`."),
    ),
)

STATS = Table(
    "stats",
    "Everything that was dropped, repaired, guessed or missing, counted.",
    (
        _RANK,
        Column("format", "VARCHAR", "Format of the file it was found in."),
        Column("what", "VARCHAR", "Stable name of the observation, e.g. `kernels_without_launch`."),
        Column("effect", "VARCHAR", "`dropped`, `repaired`, `guessed`, `missing` or `note`."),
        Column("count", "BIGINT", "How often."),
        Column("reason", "VARCHAR", "What happened, in words, with an example where there is one."),
    ),
)

TABLES: tuple[Table, ...] = (
    RANKS,
    LANES,
    EVENTS,
    STEPS,
    GROUPS,
    COLLECTIVES,
    MEMORY,
    HOLDINGS,
    ALLOCATOR_BLOCKS,
    LINKS,
    FLIGHT,
    PASSES,
    CLOCKS,
    ARRIVALS,
    ATTEMPTS,
    TIMINGS,
    ENQUEUES,
    PARAMETERS,
    JOB,
    CLOCK_SAMPLES,
    SAMPLES,
    STATS,
)


def table(name: str) -> Table:
    for candidate in TABLES:
        if candidate.name == name:
            return candidate
    raise KeyError(name)
