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
class TableSchema:
    name: str
    doc: str
    columns: tuple[Column, ...]

    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_RANK = Column("rank", "INTEGER", "Global rank of the process.")

RANKS = TableSchema(
    "ranks",
    "One row per ingested rank.",
    (
        _RANK,
        Column("rank_source", "VARCHAR", "Where the rank comes from: `recorded`, `file name` or `assigned`."),
        Column("host", "VARCHAR", "Host name, if known; ranks of one host share a clock."),
        Column("device", "VARCHAR", "Name of the accelerator, as in the trace; null on a CPU rank."),
        Column("device_index", "INTEGER", "Index of the accelerator on its host."),
        Column("world_size", "INTEGER", "Number of ranks in the job; null when not recorded."),
        Column("backend", "VARCHAR", "Backend of the default process group, e.g. `nccl`, `gloo`."),
        Column(
            "formats", "VARCHAR", "Formats this rank was read from, e.g. `kineto`, `nsys`, `kineto,flight_recorder`."
        ),
        Column("source", "VARCHAR", "File that the rank's timeline was read from."),
        Column("source_bytes", "BIGINT", "Size of that file on disk.", "bytes"),
        Column("source_hash", "VARCHAR", "SHA-256 of that file's bytes on disk."),
        Column(
            "base_time", "BIGINT", "Time that the file's timestamps are relative to; already added to all times.", "ns"
        ),
        Column("events", "BIGINT", "Number of rows of this rank in `events`."),
    ),
)

LANES = TableSchema(
    "lanes",
    "Lanes: host threads and device streams. A lane runs one thing at a time.",
    (
        _RANK,
        Column("lane", "INTEGER", "Number of the lane, unique within the rank."),
        Column("kind", "VARCHAR", "`thread` or `stream`."),
        Column("process", "BIGINT", "Process id; null for streams."),
        Column("thread", "BIGINT", "Thread id; null for streams."),
        Column("device", "INTEGER", "Device index; null for threads."),
        Column("stream", "BIGINT", "Stream id; null for threads."),
        Column("name", "VARCHAR", "Name of the lane in the trace, if it has one."),
    ),
)

EVENTS = TableSchema(
    "events",
    "Every timed event of every rank.",
    (
        _RANK,
        Column("event", "BIGINT", "Number of the event, unique within the rank."),
        Column("lane", "INTEGER", "Lane it ran on; see `lanes`."),
        Column(
            "kind",
            "VARCHAR",
            "On the host: `op`, `annotation`, `module` (a module call, annotated by the collector), `python`, "
            "`runtime`, `host_comm` (a `gloo:*` event), `overhead`, `span` (the profiler's recording), `other`. On a "
            "device: `kernel`, `comm` (a communication kernel), `memcpy`, `memset`, `sync`, `device_annotation`.",
        ),
        Column("name", "VARCHAR", "Name as recorded."),
        Column("start", "BIGINT", "Start: Unix time on the clock of the rank's host.", "ns"),
        Column("dur", "BIGINT", "Duration; the event ends at start + dur.", "ns"),
        Column("correlation", "BIGINT", "Links a runtime call to the device events it launched."),
        Column("external_id", "BIGINT", "Links runtime calls and device events to the op around the launch."),
        Column(
            "step",
            "INTEGER",
            "Training step: for host events the `ProfilerStep` at their start, for device events the step of their "
            "launch; null outside steps and for device events without a recorded launch.",
        ),
        Column(
            "annotation",
            "VARCHAR",
            "Innermost user annotation around it, except steps: on the same thread, or around its launch.",
        ),
        Column(
            "module",
            "VARCHAR",
            "Qualified name of the innermost module around it, if the collector annotated modules. A backward op has "
            "the module of its forward op, a device event that of its launch.",
        ),
        Column("source", "VARCHAR", "Source line, as `file.py(12): function`, if recorded."),
        Column("sequence", "BIGINT", "Autograd sequence number: a backward op has that of its forward op."),
        Column("forward_thread", "INTEGER", "Autograd's number for the thread that ran the forward op."),
        Column("shapes", "VARCHAR", "Shapes of an op's inputs, as JSON text from the trace."),
        Column("dtypes", "VARCHAR", "Types of an op's inputs, as JSON text from the trace."),
        Column("inputs", "VARCHAR", "Scalar inputs of an op, as JSON text from the trace."),
        Column("bytes", "BIGINT", "Bytes copied or set.", "bytes"),
        Column("grid_x", "INTEGER", "Blocks of a kernel's grid along x."),
        Column("grid_y", "INTEGER", "Blocks of a kernel's grid along y."),
        Column("grid_z", "INTEGER", "Blocks of a kernel's grid along z."),
        Column("block_x", "INTEGER", "Threads of a kernel's block along x."),
        Column("block_y", "INTEGER", "Threads of a kernel's block along y."),
        Column("block_z", "INTEGER", "Threads of a kernel's block along z."),
        Column("registers", "INTEGER", "Registers per thread."),
        Column("shared_memory", "INTEGER", "Shared memory per block.", "bytes"),
        Column("occupancy", "DOUBLE", "Achieved occupancy, as estimated by the profiler.", "%"),
        Column("wait_stream", "BIGINT", "Stream that a `sync` event waited on."),
        Column("wait_correlation", "BIGINT", "Correlation of the event record that a `sync` event waited on."),
    ),
)

STEPS = TableSchema(
    "steps",
    "Training steps, one row per rank and step.",
    (
        _RANK,
        Column("step", "INTEGER", "Number of the step, as counted by the profiler."),
        Column("lane", "INTEGER", "Thread of the training loop; if there are no host events, the compute stream."),
        Column("start", "BIGINT", "Start of `ProfilerStep#k` on the host, otherwise the start in the source.", "ns"),
        Column("stop", "BIGINT", "End of `ProfilerStep#k` on the host, otherwise the end in the source.", "ns"),
        Column(
            "device_start",
            "BIGINT",
            "Start of the first device event launched in the step; null without one. Start of the step in formats "
            "without launches.",
            "ns",
        ),
        Column(
            "device_stop",
            "BIGINT",
            "End of the last device event launched in the step; null without one. End of the step in formats without "
            "launches.",
            "ns",
        ),
    ),
)

GROUPS = TableSchema(
    "groups",
    "Members of process groups: one row per group and ingested rank.",
    (
        Column(
            "group_id", "VARCHAR", "Name and members of the group, e.g. `0@0-7`, `12@1-7/2`; the same on every rank."
        ),
        _RANK,
        Column("position", "INTEGER", "Rank within the group; null when not recorded."),
        Column("size", "INTEGER", "Number of members, ingested or not."),
        Column("name", "VARCHAR", "PyTorch's name of the group."),
        Column("description", "VARCHAR", "The program's description of the group."),
        Column("backend", "VARCHAR", "Backend of the group."),
    ),
)

COLLECTIVES = TableSchema(
    "collectives",
    "Collectives and point-to-point transfers: one row per call and rank.",
    (
        _RANK,
        Column("event", "BIGINT", "Its row in `events`."),
        Column("group_id", "VARCHAR", "Process group; null if not recorded."),
        Column("group_size", "INTEGER", "Members of the group."),
        Column("seq", "BIGINT", "Recorded sequence number within the group; null if not recorded."),
        Column("ordinal", "INTEGER", "0, 1, 2, ... in order of start, per group (per lane if the group is unknown)."),
        Column(
            "order_source",
            "VARCHAR",
            "Where the order comes from: `seq`, `flight_recorder`, `group ordinal` or `lane ordinal`.",
        ),
        Column("op", "VARCHAR", "`all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `send`, ..."),
        Column("dtype", "VARCHAR", "Element type, as recorded."),
        Column("bytes_in", "BIGINT", "Size of this rank's input.", "bytes"),
        Column("bytes_out", "BIGINT", "Size of this rank's output.", "bytes"),
        Column("peer", "INTEGER", "Other rank of a point-to-point transfer."),
        Column("start", "BIGINT", "Start on the clock of the rank's host.", "ns"),
        Column("stop", "BIGINT", "End on the clock of the rank's host.", "ns"),
        Column("lane", "INTEGER", "Stream, or the thread that runs a gloo collective."),
        Column("step", "INTEGER", "Training step, as in `events`."),
        Column(
            "metadata",
            "VARCHAR",
            "Where op, group and sizes come from: `kernel`, `record_param_comms`, `gloo`, `nvtx` (ranges of PyTorch "
            "and NCCL around the launch), `op_trace` (op type and position of the rank), or `name` (guessed from the "
            "kernel's name).",
        ),
    ),
)

MEMORY = TableSchema(
    "memory",
    "Allocations and frees.",
    (
        _RANK,
        Column("time", "BIGINT", "When it happened.", "ns"),
        Column("lane", "INTEGER", "Thread that allocated or freed."),
        Column("step", "INTEGER", "Training step, as in `events`."),
        Column("device_type", "INTEGER", "As in PyTorch: 0 is the CPU, 1 CUDA, 6 ROCm (1 in some versions)."),
        Column("device_index", "INTEGER", "Index of the device; -1 on the CPU."),
        Column("address", "BIGINT", "Address of the block."),
        Column("bytes", "BIGINT", "Positive for an allocation, negative for a free.", "bytes"),
        Column("allocated", "BIGINT", "Total allocated after it.", "bytes"),
        Column("reserved", "BIGINT", "Total reserved by the allocator after it.", "bytes"),
        Column("line", "VARCHAR", "Innermost program line that allocated it, if a snapshot's history has it."),
    ),
)

HOLDINGS = TableSchema(
    "holdings",
    "Memory and its owners, as seen by the collector while a deep window with memory was open.",
    (
        _RANK,
        Column("time", "BIGINT", "When it was first seen.", "ns"),
        Column("gone", "BIGINT", "When it was first seen to be gone; null if it stayed.", "ns"),
        Column("before", "BOOLEAN", "Whether it existed when the window opened."),
        Column("device_type", "INTEGER", "As in `memory`."),
        Column("device_index", "INTEGER", "As in `memory`."),
        Column("address", "BIGINT", "Address of the storage, as in `memory`."),
        Column("bytes", "BIGINT", "Size of the storage.", "bytes"),
        Column(
            "owner", "VARCHAR", "`parameters`, `gradients`, `optimizer_state`, `buffers`, `batches`; otherwise null."
        ),
        Column(
            "name",
            "VARCHAR",
            "Name of the parameter or buffer, otherwise of the object that holds the tensor, such as a list.",
        ),
        Column("line", "VARCHAR", "Source line that keeps it alive, as `file.py:12`, if found."),
    ),
)

ALLOCATOR_BLOCKS = TableSchema(
    "allocator_blocks",
    "Blocks of a device's caching allocator, from a snapshot (`torch.cuda.memory._dump_snapshot`).",
    (
        _RANK,
        Column("device_type", "INTEGER", "As in `memory`."),
        Column("device_index", "INTEGER", "As in `memory`."),
        Column("segment", "BIGINT", "Address of the segment: the memory that the allocator got from the device."),
        Column("segment_bytes", "BIGINT", "Size of the segment.", "bytes"),
        Column("expandable", "BOOLEAN", "Whether the segment can grow and shrink (`expandable_segments:True`)."),
        Column("stream", "BIGINT", "Stream of the segment; 0 is the default stream."),
        Column("pool", "VARCHAR", "`small` or `large`; for a private pool, such as a CUDA graph's, `large (0, 1)`."),
        Column("address", "BIGINT", "Address of the block."),
        Column("bytes", "BIGINT", "Size of the block.", "bytes"),
        Column(
            "requested", "BIGINT", "Requested size, before the allocator rounded up; null for a free block.", "bytes"
        ),
        Column("state", "VARCHAR", "`allocated`, `pending` (freed, but another stream may still use it) or `free`."),
        Column("line", "VARCHAR", "Innermost program line that allocated it, as `file.py:12`; null if unknown."),
        Column("stack", "VARCHAR", "Stack of the allocation, outermost frame first, as in `samples`."),
    ),
)

LINKS = TableSchema(
    "links",
    "Links from forward op to backward op, from the trace's `fwdbwd` arrows.",
    (
        _RANK,
        Column("from_lane", "INTEGER", "Thread of the forward op."),
        Column("from_start", "BIGINT", "Start of the forward op.", "ns"),
        Column("to_lane", "INTEGER", "Thread of the backward op."),
        Column("to_start", "BIGINT", "Start of the backward op.", "ns"),
    ),
)

FLIGHT = TableSchema(
    "flight",
    "Entries of c10d Flight Recorder dumps: what each rank enqueued, and its state.",
    (
        _RANK,
        Column("record", "BIGINT", "Number of the entry in the recorder."),
        Column("group_id", "VARCHAR", "Process group; see `groups`."),
        Column("group_name", "VARCHAR", "PyTorch's name of the group."),
        Column("seq", "BIGINT", "Sequence number of a collective within its group."),
        Column("p2p_seq", "BIGINT", "Sequence number of a point-to-point transfer within its group."),
        Column("op_id", "BIGINT", "Number of the operation; the operations of a coalesced call count separately."),
        Column("op", "VARCHAR", "Operation, named as in `collectives`."),
        Column("name", "VARCHAR", "Operation as recorded, e.g. `nccl:all_reduce`."),
        Column("is_p2p", "BOOLEAN", "Whether it is a point-to-point transfer."),
        Column("state", "VARCHAR", "`scheduled`, `started` or `completed`."),
        Column("created", "BIGINT", "When the host enqueued it.", "ns"),
        Column("started", "BIGINT", "When it was seen to have started.", "ns"),
        Column("completed", "BIGINT", "When it was seen to have completed.", "ns"),
        Column("dtype", "VARCHAR", "Element types of the inputs, as recorded."),
        Column("bytes_in", "BIGINT", "Size of the inputs.", "bytes"),
        Column("bytes_out", "BIGINT", "Size of the outputs.", "bytes"),
        Column("in_shapes", "VARCHAR", "Shapes of the inputs as JSON."),
        Column("out_shapes", "VARCHAR", "Shapes of the outputs as JSON."),
        Column("source", "VARCHAR", "Innermost source line of the call."),
    ),
)

NCCL_COMMS = TableSchema(
    "nccl_comms",
    "Communicators in logs of NCCL (`NCCL_DEBUG=INFO`): one row per rank and communicator.",
    (
        _RANK,
        Column(
            "comm",
            "VARCHAR",
            "Name of the communicator, the same on all its ranks: its commId, or its parent's with split and color.",
        ),
        Column("comm_rank", "INTEGER", "Rank within the communicator."),
        Column("size", "INTEGER", "Ranks of the communicator."),
        Column("host", "VARCHAR", "Host of the process."),
        Column("process", "BIGINT", "Process id."),
        Column("device_index", "INTEGER", "CUDA index of the device in the process."),
        Column("bus", "VARCHAR", "PCI address of the device, in hexadecimal."),
        Column("is_complete", "BOOLEAN", "Whether NCCL logged the end of its start."),
        Column("channels", "INTEGER", "Channels for collectives; null if not logged."),
        Column("nvls_channels", "INTEGER", "Channels for NVLink SHARP; 0 if it is not used."),
        Column("rings", "INTEGER", "Rings; only rank 0 of the communicator logs them."),
        Column("version", "VARCHAR", "Version of NCCL."),
        Column("network", "VARCHAR", "Network that NCCL chose, e.g. `IB`, `Socket`, `AWS Libfabric`."),
        Column("settings", "VARCHAR", "Variables of NCCL in the environment, e.g. `NCCL_PROTO=simple`."),
        Column("adapters", "VARCHAR", "Adapters of InfiniBand or RoCE that NCCL found; empty if it found none."),
    ),
)

NCCL_LINKS = TableSchema(
    "nccl_links",
    "Connections between ranks in logs of NCCL: one row per rank, direction and transport.",
    (
        _RANK,
        Column("comm", "VARCHAR", "Communicator; see `nccl_comms`."),
        Column("sender", "INTEGER", "Sender, by its rank in the communicator."),
        Column("receiver", "INTEGER", "Receiver, by its rank in the communicator."),
        Column("transport", "VARCHAR", "As logged, without the adapter's number, e.g. `P2P/IPC`, `NET/IB/GDRDMA`."),
        Column("channels", "INTEGER", "Connections of this kind."),
    ),
)

NCCL_CHOICES = TableSchema(
    "nccl_choices",
    "Algorithms that NCCL chose, in logs with `NCCL_DEBUG_SUBSYS=TUNING`.",
    (
        _RANK,
        Column("comm", "VARCHAR", "Communicator; null if the log does not show which."),
        Column("op", "VARCHAR", "Operation, named as in `collectives`; null if not logged."),
        Column("bytes", "BIGINT", "Size: the whole tensor, gathered or not yet scattered.", "bytes"),
        Column(
            "algorithm", "VARCHAR", "`ring`, `tree`, `collnet_direct`, `collnet_chain`, `nvls`, `nvls_tree` or `pat`."
        ),
        Column("protocol", "VARCHAR", "`LL`, `LL128` or `Simple`."),
        Column("channels", "INTEGER", "Channels of the call; null if not logged."),
        Column("count", "BIGINT", "Calls."),
    ),
)

PASSES = TableSchema(
    "passes",
    "Forward and backward passes of microbatches, for formats that record them.",
    (
        _RANK,
        Column("step", "INTEGER", "Training step."),
        Column("microbatch", "INTEGER", "Number of the microbatch within the step, from 0."),
        Column("chunk", "INTEGER", "Model chunk of an interleaved schedule on this rank, from 0."),
        Column("stage", "INTEGER", "Pipeline stage of the rank, from 0."),
        Column("direction", "VARCHAR", "`forward` or `backward`."),
        Column("start", "BIGINT", "Start on the clock of the rank's host.", "ns"),
        Column("stop", "BIGINT", "End on the clock of the rank's host.", "ns"),
    ),
)

CLOCKS = TableSchema(
    "clocks",
    "Offset of each rank's clock from that of the reference rank, from collectives.",
    (
        _RANK,
        Column("reference", "INTEGER", "Rank whose clock is the common clock."),
        Column(
            "method",
            "VARCHAR",
            "`reference`, `same host`, `collectives`, or why there is no offset: `untied` (no collective connects the "
            "rank to the reference) or `contradictory` (no offset satisfies all collectives).",
        ),
        Column("correction", "BIGINT", "Add it to the rank's times to get the reference's, at `instant`.", "ns"),
        Column(
            "uncertainty", "BIGINT", "The true offset is within this distance of `correction`, with certainty.", "ns"
        ),
        Column("drift", "DOUBLE", "Growth of the correction over the rank's time.", "ppm"),
        Column(
            "spread", "BIGINT", "Typical distance between the ends of its collectives and those of other ranks.", "ns"
        ),
        Column(
            "instant", "BIGINT", "When `correction` is exact: the middle of the run, on the reference's clock.", "ns"
        ),
        Column("constraints", "BIGINT", "Collectives and transfers of the rank that bound its offset."),
        Column("matched", "BIGINT", "Collectives and transfers of the rank that were also found on other ranks."),
        Column(
            "unmatched", "BIGINT", "Those not found on other ranks, although their group has other ranks in the run."
        ),
    ),
)

ARRIVALS = TableSchema(
    "arrivals",
    "Which ranks took part in each collective or transfer, when each arrived, how long it waited, and for which rank.",
    (
        _RANK,
        Column(
            "event",
            "BIGINT",
            "Its row in `events` and `collectives`; null for a member without a record of this collective.",
        ),
        Column("meeting", "BIGINT", "Number of the collective or transfer: the same on all its ranks."),
        Column("is_transfer", "BOOLEAN", "Whether it is a point-to-point transfer, between two ranks."),
        Column("step", "INTEGER", "Training step of the collective or transfer."),
        Column("expected", "INTEGER", "Members of the group; null if unknown."),
        Column("seen", "INTEGER", "Ranks that have a record of it."),
        Column("arrived", "BIGINT", "Start on the reference's clock; null for ranks whose clock is not aligned.", "ns"),
        Column(
            "wait", "BIGINT", "Time from its start until the last rank seen arrived; 0 if below the clock error.", "ns"
        ),
        Column("late_rank", "INTEGER", "The last rank seen to arrive, if any rank waited for it."),
        Column(
            "basis",
            "VARCHAR",
            "How the wait was measured: `clock` (arrivals on the common clock), `ends` (the same, but shorter than the "
            "clock uncertainty: it assumes that collectives end on all ranks at once) or `shortest` (time beyond the "
            "shortest call on any rank).",
        ),
    ),
)

_ATTEMPT = Column("attempt", "INTEGER", "Number of the attempt, from 0; see `attempts`.")

ATTEMPTS = TableSchema(
    "attempts",
    "Attempts of a job that the collector recorded: each elastic restart, and each new start of the job, is one.",
    (
        _RANK,
        _ATTEMPT,
        Column("session", "VARCHAR", "Identifies the process of this rank in this attempt."),
        Column("host", "VARCHAR", "Host it ran on."),
        Column("world_size", "INTEGER", "Number of ranks in the attempt."),
        Column("local_rank", "INTEGER", "Local rank on its host."),
        Column(
            "restart", "INTEGER", "Earlier restarts, as torchrun counts them on each host: only after failures there."
        ),
        Column("start", "BIGINT", "When the collector started, on the clock of the rank's host.", "ns"),
        Column("stop", "BIGINT", "When the last record was written.", "ns"),
        Column("ended", "BOOLEAN", "Whether the process ended by itself; false if it was killed or still runs."),
        Column("records", "BIGINT", "Records in the capture."),
        Column("dropped", "BIGINT", "Records that the collector lost: its buffer was full, or a write failed."),
    ),
)

TIMINGS = TableSchema(
    "timings",
    "Every training step, profiled or not, as timed by the collector's hooks on the training thread.",
    (
        _RANK,
        _ATTEMPT,
        Column("step", "INTEGER", "Number of the step, from 0: ended by an optimizer step, or by `lostflops.step()`."),
        Column("start", "BIGINT", "Start on the clock of the rank's host.", "ns"),
        Column("stop", "BIGINT", "End; the next step begins there.", "ns"),
        Column("data", "BIGINT", "Waiting for the next batch; null if the collector no longer recorded phases.", "ns"),
        Column(
            "forward",
            "BIGINT",
            "From the call of the outermost module to the backward pass; null if calls were not seen.",
            "ns",
        ),
        Column("backward", "BIGINT", "Inside backward passes; null if the collector no longer recorded phases.", "ns"),
        Column("optimizer", "BIGINT", "Inside optimizer steps.", "ns"),
        Column("outside", "BIGINT", "The rest: stop - start minus the four above; null if one of them is null.", "ns"),
        Column(
            "device_time", "BIGINT", "Duration of the step on the accelerator, by device events; null on a CPU.", "ns"
        ),
        *(
            Column(f"device_{phase}", "BIGINT", f"Part of `device_time`, between the events around the {what}.", "ns")
            for phase, what in (
                ("data", "wait for a batch"),
                ("forward", "forward pass"),
                ("backward", "backward pass"),
                ("optimizer", "optimizer steps"),
            )
        ),
        Column("microbatches", "INTEGER", "Backward passes in the step."),
        Column("samples", "BIGINT", "Samples in its batches, if their first dimension shows it."),
        Column("tokens", "BIGINT", "Tokens in its batches, if they contain token ids."),
        Column(
            "peak_memory",
            "BIGINT",
            "Peak memory so far: allocated on the device; on a CPU, of the process.",
            "bytes",
        ),
        Column("own", "BIGINT", "Overhead of the collector on the training thread.", "ns"),
        Column(
            "gc", "BIGINT", "In Python's garbage collector on that thread; null if an older version recorded it.", "ns"
        ),
        Column("gc_count", "INTEGER", "Garbage collections in the step."),
        Column("cpu", "BIGINT", "CPU time of the training thread; null if the kernel does not report it.", "ns"),
        Column("queued", "BIGINT", "Time that it was ready to run but waited for a core.", "ns"),
        Column("system", "BIGINT", "Part of `cpu` spent in the operating system's kernel.", "ns"),
        Column("faults", "BIGINT", "Its minor page faults (no disk access)."),
        Column("preempted", "BIGINT", "How often it was preempted."),
        Column("saving", "BIGINT", "In `torch.save` and other functions that write checkpoints, on that thread.", "ns"),
        Column(
            "evaluating",
            "BIGINT",
            "From the first to the last forward pass without gradients in the step.",
            "ns",
        ),
        Column(
            "comm_hook",
            "BIGINT",
            "Inside communication hooks of DDP (`register_comm_hook`) on the host, on any thread; null if none ran.",
            "ns",
        ),
        Column(
            "kind_of_step",
            "VARCHAR",
            "Which optimizers stepped in it, by number: `0`, `1` or `0+1`. Steps of different kinds are not compared; "
            "null if unknown.",
        ),
        Column("skipped", "BOOLEAN", "Whether the update was skipped because gradients were not finite."),
        Column("compiled", "BOOLEAN", "Whether anything was compiled in it."),
        Column(
            "profiled",
            "BOOLEAN",
            "Whether a deep window was recorded, prepared or ended in it, or the collector described the job in it.",
        ),
    ),
)

ENQUEUES = TableSchema(
    "enqueues",
    "When the host of each rank enqueued each collective, from the c10d Flight Recorder.",
    (
        _RANK,
        _ATTEMPT,
        Column("record", "BIGINT", "Number of the entry in the recorder."),
        Column("group_id", "VARCHAR", "Process group; see `groups`."),
        Column("seq", "BIGINT", "Sequence number within the group; collectives and transfers count separately."),
        Column("op", "VARCHAR", "Operation, named as in `collectives`."),
        Column("name", "VARCHAR", "Operation as recorded, e.g. `gloo:all_reduce`."),
        Column("is_p2p", "BOOLEAN", "Whether it is a point-to-point transfer."),
        Column("bytes_in", "BIGINT", "Size of the inputs.", "bytes"),
        Column("bytes_out", "BIGINT", "Size of the outputs.", "bytes"),
        Column(
            "created",
            "BIGINT",
            "When the host enqueued it. An accelerator starts it later, so this shows a late host, never a wait.",
            "ns",
        ),
    ),
)

MARKS = TableSchema(
    "marks",
    "Memory at points of the program that it named with `lostflops.mark`.",
    (
        _RANK,
        _ATTEMPT,
        Column("number", "INTEGER", "0, 1, 2, ... in the order of the process."),
        Column("name", "VARCHAR", "Name of the mark."),
        Column("occurrence", "INTEGER", "0, 1, 2, ... for marks of one name."),
        Column("time", "BIGINT", "When it was set, on the clock of the rank's host.", "ns"),
        Column("step", "INTEGER", "Step that had not ended yet, as in `timings`; null before the first."),
        Column("device", "VARCHAR", "Current device, e.g. `cuda:0`; null if the process had not used any device yet."),
        Column("allocated", "BIGINT", "Allocated by torch on that device; null without one.", "bytes"),
        Column("reserved", "BIGINT", "Reserved by torch's allocator on that device.", "bytes"),
        Column("peak", "BIGINT", "Peak of `allocated` so far, or since the program reset it.", "bytes"),
        Column("resident", "BIGINT", "Resident memory of the process; null if the kernel does not report it.", "bytes"),
    ),
)

NETWORK = TableSchema(
    "network",
    "Traffic of the host's interfaces and of the process's own TCP connections: counters of the Linux kernel, read "
    "once a second in the first minute, twice a second in deep windows, otherwise every 10 s.",
    (
        _RANK,
        _ATTEMPT,
        Column("time", "BIGINT", "When they were read, on the clock of the rank's host.", "ns"),
        Column(
            "scope",
            "VARCHAR",
            "`host`: all traffic of an interface in the process's network namespace, read by local rank 0; `process`: "
            "that of its TCP connections.",
        ),
        Column(
            "interface",
            "VARCHAR",
            "Name of the interface; of connections, `lo` if both ends have the same address, otherwise null.",
        ),
        Column("received", "BIGINT", "Bytes received so far, on interfaces with headers.", "bytes"),
        Column("sent", "BIGINT", "Bytes sent so far, on interfaces with headers.", "bytes"),
        Column("resent", "BIGINT", "Part of `sent` that TCP sent again; null for interfaces.", "bytes"),
    ),
)

PARAMETERS = TableSchema(
    "parameters",
    "Parameters of the trained model, in the model's order.",
    (
        _RANK,
        Column("position", "INTEGER", "0, 1, 2, ... in the model's order."),
        Column("name", "VARCHAR", "Qualified name."),
        Column("module", "VARCHAR", "Class of the module that holds it."),
        Column("shape", "VARCHAR", "Full shape as JSON, even if this rank has only a shard."),
        Column("local_shape", "VARCHAR", "Shape of this rank's part, as JSON."),
        Column("dtype", "VARCHAR", "Element type."),
        Column("bytes", "BIGINT", "Size of this rank's part.", "bytes"),
        Column("trainable", "BOOLEAN", "Whether it requires a gradient."),
        Column("bucket", "INTEGER", "DDP bucket that reduces its gradient; null without DDP."),
        Column("unit", "VARCHAR", "Qualified name of the FSDP unit that gathers it; null without FSDP."),
    ),
)

JOB = TableSchema(
    "job",
    "Facts that the collector read once per attempt: versions, known settings, process groups, buckets, units, mesh.",
    (
        _RANK,
        _ATTEMPT,
        Column("key", "VARCHAR", "What it is, e.g. `torch`, `environment`, `ddp`, `fsdp`, `mesh`."),
        Column("value", "VARCHAR", "Its value as JSON."),
    ),
)

CLOCK_SAMPLES = TableSchema(
    "clock_samples",
    "Clock readings: the two clocks of a rank, and wall clocks of other ranks, received through the job's store.",
    (
        _RANK,
        Column("wall", "BIGINT", "Unix time of the rank's host.", "ns"),
        Column("monotonic", "BIGINT", "Its monotonic clock at the same moment.", "ns"),
        Column("peer", "INTEGER", "Rank whose reading arrived at that moment; null for the rank's own reading."),
        Column(
            "peer_wall", "BIGINT", "That rank's wall clock when it sent the reading, which was before it arrived.", "ns"
        ),
    ),
)

SAMPLES = TableSchema(
    "samples",
    "Python stacks of the training thread, about 100 per second while a deep window was open.",
    (
        _RANK,
        Column("time", "BIGINT", "When the stack was read, on the clock of the rank's host.", "ns"),
        Column("stack", "VARCHAR", "Frames, outermost first, as `function file.py:12`, joined by `;`."),
    ),
)

STATS = TableSchema(
    "stats",
    "Counts of everything that was dropped, repaired, guessed or missing.",
    (
        _RANK,
        Column("format", "VARCHAR", "Format of the file."),
        Column("what", "VARCHAR", "Stable name of the observation, e.g. `kernels_without_launch`."),
        Column("effect", "VARCHAR", "`dropped`, `repaired`, `guessed`, `missing` or `note`."),
        Column("count", "BIGINT", "How often."),
        Column("reason", "VARCHAR", "What happened, in words, with an example if there is one."),
    ),
)

ACCOUNTS = TableSchema(
    "accounts",
    "One row per rank: totals of its time and FLOPs, and digests that show whether they are current. Derived. All "
    "totals are null if they do not fit into the tables; questions then read the events.",
    (
        _RANK,
        Column(
            "code",
            "VARCHAR",
            "Digest of the source code that computed it; another version of Lostflops computes the row again.",
        ),
        Column("inputs", "VARCHAR", "Digest of the rows that it was computed from."),
        Column("scope", "VARCHAR", "What is accounted for: `steps`, or the whole `trace`."),
        Column("on_device", "BOOLEAN", "Whether it is the time of a device; else it is that of the training thread."),
        Column("wall", "BIGINT", "Time that is accounted for.", "ns"),
        Column("compute", "BIGINT", "Time with any compute.", "ns"),
        Column("comm", "BIGINT", "Time with any communication.", "ns"),
        Column("hidden", "BIGINT", "Communication that ran under compute.", "ns"),
        Column("kernels", "BIGINT", "Number of kernels in the whole trace, communication included."),
        Column("unlaunched", "BIGINT", "Number of kernels in the whole trace without a recorded launch."),
        Column("blocker", "BIGINT", "Event that blocked the host before the longest `idle.sync`; -1 if no event did."),
        Column("launched_flops", "BIGINT", "FLOPs of the ops that the steps launched.", "FLOPs"),
        Column("matmul_ns", "BIGINT", "Time of matmul, attention and convolution kernels outside the optimizer.", "ns"),
        Column("counted_ns", "BIGINT", "Part of `matmul_ns` with known FLOPs.", "ns"),
        Column("tensor_ns", "BIGINT", "Part of `matmul_ns` on tensor cores, by the names of kernels.", "ns"),
        Column("plain_ns", "BIGINT", "Part of `matmul_ns` not on tensor cores; of the rest it is unknown.", "ns"),
        Column("notes", "VARCHAR", "What a reader of the account should know, as a JSON list."),
    ),
)

SPANS = TableSchema(
    "spans",
    "Time that is accounted for: one row per rank and step, or per stretch of a trace without steps. Derived.",
    (
        _RANK,
        Column("step", "INTEGER", "Number of the step; null if `accounts.scope` is `trace`."),
        Column("start", "BIGINT", "Start on the clock of the rank's host.", "ns"),
        Column("stop", "BIGINT", "End on the clock of the rank's host.", "ns"),
        Column(
            "kernels",
            "BIGINT",
            "Compute kernels that started in it; on a CPU rank, ops. In scope `trace` the first row has the sum.",
        ),
    ),
)

STRETCHES = TableSchema(
    "stretches",
    "All recorded time of each rank, in order: one row per uninterrupted stretch on one line of the "
    "[ledger](../explanation/ledger.md). Derived. Stretches do not overlap. Cut at the edges of a step, they sum to "
    "the step's rows in `ledger`; they also cover recorded time outside steps.",
    (
        _RANK,
        Column("start", "BIGINT", "Start on the clock of the rank's host.", "ns"),
        Column("stop", "BIGINT", "End on the clock of the rank's host.", "ns"),
        Column("line", "VARCHAR", "Line of the ledger, e.g. `compute`, `comm.wait`."),
        Column(
            "late_rank",
            "INTEGER",
            "Rank that it waited for, on `comm.wait` and `comm.bubble`; null if unknown, and on other lines.",
        ),
    ),
)

LEDGER = TableSchema(
    "ledger",
    "Time of each rank by line of the [ledger](../explanation/ledger.md), in total and by step, phase, phase of the "
    "job, annotation, module and detail. Derived. Each of these sums to `accounts.wall`, except `detail`, which covers "
    "only some lines, and `step`, which has no rows in scope `trace`.",
    (
        _RANK,
        Column(
            "split",
            "VARCHAR",
            "`line` (the total), `detail`, `step`, `phase`, `job_phase`, `annotation` or `module`. Filter by it: rows "
            "with another value count the same time again.",
        ),
        Column("name", "VARCHAR", "Detail, phase, phase of the job, annotation or module; null for `line` and `step`."),
        Column("step", "INTEGER", "Number of the step, for `step`."),
        Column("line", "VARCHAR", "Line of the ledger, e.g. `compute`, `comm.wait`."),
        Column("ns", "BIGINT", "Time.", "ns"),
        Column("longest", "BIGINT", "Longest single stretch, for `line`.", "ns"),
        Column("event", "BIGINT", "Event of the longest stretch; -1 for none."),
        Column("place", "INTEGER", "Row number within the rank; of two names with equal time, verbs show the lower."),
    ),
)

WAITS = TableSchema(
    "waits",
    "Time on `comm.wait` and `comm.bubble` by process group and late rank, if the late rank is known. Derived.",
    (
        _RANK,
        Column("group_id", "VARCHAR", "Process group; see `groups`."),
        Column("late_rank", "INTEGER", "Rank that it waited for."),
        Column("is_transfer", "BOOLEAN", "Whether it waited for one peer, in a point-to-point transfer."),
        Column("ns", "BIGINT", "Time.", "ns"),
    ),
)

OVERLAP = TableSchema(
    "overlap",
    "Activities of a rank that ran at once, and how much of each group's communication compute hid. Derived.",
    (
        _RANK,
        Column(
            "running", "VARCHAR", 'What ran at the same time, as JSON: `["compute", "all_reduce"]`; null for groups.'
        ),
        Column("group_id", "VARCHAR", "Process group; null in rows of activities."),
        Column("ns", "BIGINT", "Time in which exactly these ran; for a group, in which it communicated.", "ns"),
        Column("hidden", "BIGINT", "Part of the group's time that ran under compute.", "ns"),
    ),
)

KERNELS = TableSchema(
    "kernels",
    "Kernels of each rank, or ops on a CPU rank, summed by class and name. Derived.",
    (
        _RANK,
        Column("kind", "VARCHAR", "Class, e.g. `matmul`, `attention`, `elementwise`."),
        Column("name", "VARCHAR", "Name as recorded."),
        Column("count", "BIGINT", "Number of runs."),
        Column("ns", "BIGINT", "Its time; kernels that run at once count in full.", "ns"),
        Column("gap_ns", "BIGINT", "Time on `idle.host` directly before its runs.", "ns"),
        Column("occupied_ns", "BIGINT", "Part of `ns` with a recorded occupancy above 0.", "ns"),
        Column("occupancy", "DOUBLE", "Sum of occupancy x time; divided by `occupied_ns` it is the mean.", "% x ns"),
    ),
)

WORK = TableSchema(
    "work",
    "FLOPs and minimum memory traffic of each rank's ops with known FLOPs, by op and cost of a call. Derived.",
    (
        _RANK,
        Column("op", "VARCHAR", "Name of the op."),
        Column(
            "model_flops", "BIGINT", "FLOPs of one call; the model needs only those of rows without `again`.", "FLOPs"
        ),
        Column("recompute_flops", "BIGINT", "FLOPs of one call that its algorithm does twice.", "FLOPs"),
        Column("bytes", "BIGINT", "Minimum memory traffic of one call.", "bytes"),
        Column("dtype", "VARCHAR", "Precision of the operands, e.g. `bf16`, `tf32`."),
        Column("again", "BOOLEAN", "Whether activation checkpointing did it a second time."),
        Column("count", "DOUBLE", "Number of calls; one that is partly inside the accounted time is a fraction."),
        Column("ns", "BIGINT", "Time of their kernels.", "ns"),
    ),
)

STACKS = TableSchema(
    "stacks",
    "Python stacks of each rank by line of the ledger, from `samples`. Derived.",
    (
        _RANK,
        Column("line", "VARCHAR", "Line of the ledger that the rank was on."),
        Column("stack", "VARCHAR", "Frames, as in `samples`."),
        Column("count", "BIGINT", "How often it was read."),
        Column("ns", "BIGINT", "Time that these samples represent.", "ns"),
        Column("place", "INTEGER", "Order of the rank's rows, as in `ledger`."),
    ),
)

TIMELINE = TableSchema(
    "timeline",
    "What each rank mostly did in each of many equal parts of the run's time. Derived.",
    (
        _RANK,
        Column("start", "BIGINT", "Start of the first part, on the reference's clock; the same for all ranks.", "ns"),
        Column("stop", "BIGINT", "End of the last part, on the reference's clock.", "ns"),
        Column("parts", "INTEGER", "Number of parts."),
        Column(
            "lines",
            "BLOB",
            "A byte for each part, the line that takes most of it: 1 `compute`, 2 `comm.transfer`, 3 `comm.wait`, "
            "4 `comm.bubble`, 5 `copy`, 6 `idle.data`, 7 `idle.sync`, 8 `idle.alloc`, 9 `idle.compile`, "
            "10 `idle.host`, 11 `idle.python`, 12 `idle.dependency`, 13 `idle.bubble`, 14 `unexplained`; 0 nothing.",
        ),
    ),
)

FINDINGS = TableSchema(
    "findings",
    "Findings of the diagnosis: level `found` first, then by expected gain. Derived by ingest; for a large run, by the "
    "first diagnosis.",
    (
        Column("number", "INTEGER", "Number of the finding, from 1."),
        Column("id", "VARCHAR", "The cause with the ranks that it is on, e.g. `straggler:4`."),
        Column("level", "VARCHAR", "`found` or `suspected`."),
        Column("cause", "VARCHAR", "The rule that found it."),
        Column("what", "VARCHAR", "What is wrong, in words."),
        Column("fix", "VARCHAR", "What to do, in words."),
        Column("code", "VARCHAR", "Digest of the source code that computed it, as in `accounts`."),
        Column("lost_ns", "BIGINT", "Time lost to this cause, summed over all ranks.", "ns"),
        Column("gain", "DOUBLE", "Fraction of the step time that the fix saves (0.21 is 21%); null if unknown."),
        Column("gain_low", "DOUBLE", "Lower end of the range of `gain`; null for a guess, 0 if `gain` is a limit."),
        Column("gain_high", "DOUBLE", "Upper end of the range of `gain`; null for a guess."),
    ),
)

DIAGNOSIS = TableSchema(
    "diagnosis",
    "The whole diagnosis, as verbs show it: one row. Derived by ingest; for a large run, by the first diagnosis.",
    (
        Column("code", "VARCHAR", "Digest of the source code that computed it, as in `accounts`."),
        Column("document", "VARCHAR", "All findings and checks as JSON."),
    ),
)

SUMMARY = TableSchema(
    "summary",
    "What a fleet knows of the run, as `lostflops fleet` reads it: one row. Derived by ingest; for a large run, by the "
    "first `lostflops fleet`.",
    (
        Column("code", "VARCHAR", "Digest of the source code that computed it, as in `accounts`."),
        Column("document", "VARCHAR", "Its summary as JSON."),
    ),
)

OF_RANK: tuple[TableSchema, ...] = (ACCOUNTS, SPANS, STRETCHES, LEDGER, WAITS, OVERLAP, KERNELS, WORK, STACKS)
"""Tables that make up the account of a rank."""
OF_RUN: tuple[TableSchema, ...] = (FINDINGS, DIAGNOSIS, SUMMARY)
"""Tables that depend on all rows of a run: every change of them removes these."""
DERIVED: tuple[TableSchema, ...] = (*OF_RANK, TIMELINE, *OF_RUN)
"""Tables that are made from the others, so that a question does not have to read every event."""

TABLES: tuple[TableSchema, ...] = (
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
    NCCL_COMMS,
    NCCL_LINKS,
    NCCL_CHOICES,
    PASSES,
    CLOCKS,
    ARRIVALS,
    ATTEMPTS,
    TIMINGS,
    ENQUEUES,
    MARKS,
    NETWORK,
    PARAMETERS,
    JOB,
    CLOCK_SAMPLES,
    SAMPLES,
    STATS,
    *DERIVED,
)


def table(name: str) -> TableSchema:
    for candidate in TABLES:
        if candidate.name == name:
            return candidate
    raise KeyError(name)
