"""Host program of a rank in a training step: the loop of a DDP, tensor-parallel or pipelined job.

A program is a generator. It yields a device event where the host blocks on the device, and gets its end back.
"""

from collections.abc import Generator, Iterator
from math import exp

import numpy as np

from .declaration import Kernel
from .host import SyntheticHost
from .job import Schedule, SyntheticJob
from .meetings import SyntheticMeetings
from .recorded_names import (
    ALL_REDUCE_KERNEL,
    COLLECTIVES,
    COMPILING,
    DATALOADER,
    DUMPS,
    ELEMENTWISE_KERNEL,
    FOREACH_KERNELS,
    FORMAT_METRICS,
    FUSED_UPDATE,
    ITEM,
    LOG_LOSS,
    LOOP_UPDATE,
    MATMUL_KERNEL,
    OPTIMIZER_KERNEL,
    READ_BACK,
    SEND_RECV_KERNEL,
    TRAIN,
    TRAIN_STEP,
)
from .records import AUTOGRAD, MAIN, CollectiveOp, DeviceEvent, HostEvent, SyntheticCollective
from .topology import ProcessGroup

Program = Generator[DeviceEvent, int, None]

PAGEABLE_GBS = 6
COMPUTE, WEIGHT_GRADIENTS, TENSOR, DATA = 7, 11, 20, 24
# One stream per direction of each pipeline edge: on a shared one, sends facing each other would block for ever.
RECV_FORWARD, SEND_FORWARD, RECV_BACKWARD, SEND_BACKWARD = 28, 32, 36, 40

PCIE_GBS = 25
MEMSET_GBS = 1_000
ITEM_COPY = 1_500


def microbatch_order(schedule: Schedule, stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """Return the forward ("F") and backward ("B") passes of a stage in the order in which it runs them.

    >>> microbatch_order("1f1b", stage=0, stages=2, microbatches=2)
    [('F', 0), ('F', 1), ('B', 0), ('B', 1)]
    """
    warm_up = microbatches if schedule == "gpipe" else min(stages - 1 - stage, microbatches)
    order = [("F", batch) for batch in range(warm_up)]
    for batch in range(microbatches - warm_up):
        order += [("F", warm_up + batch), ("B", batch)]
    return order + [("B", batch) for batch in range(microbatches - warm_up, microbatches)]


def _normals(*seed: int) -> Iterator[float]:
    generator = np.random.default_rng(seed)
    while True:
        yield from generator.standard_normal(1024).tolist()


class TrainingLoop:
    def __init__(self, cluster: SyntheticJob, host: SyntheticHost, meetings: SyntheticMeetings) -> None:
        self._cluster = cluster
        self._host = host
        self._rank = host.record.rank
        self._place = cluster.topology.places[self._rank]
        self._meetings = meetings
        self._normals = _normals(cluster.seed, self._rank)
        self._host_normals = _normals(cluster.seed, self._rank, 2)
        self._layers = cluster.stage_layers[self._place.stage] if cluster.stage_layers else cluster.model.layers
        self._order = microbatch_order(
            cluster.schedule, self._place.stage, cluster.pipeline_parallel, cluster.microbatches
        )
        self._is_ddp = self._place.data is not None and cluster.overlap and not cluster.sharding
        self._awaited: list[DeviceEvent] = []
        self._buckets: list[DeviceEvent] = []
        self._units: dict[int, DeviceEvent] = {}
        self._sequences: dict[tuple[int, int, int], int] = {}
        self._next_sequence = 0
        self._launch_factor = 1

    def run(self) -> Program:
        with self._host.frame(TRAIN):
            for step in range(self._cluster.first_step, self._cluster.first_step + self._cluster.steps):
                self._host.step = step
                self._host.record.flops[step] = 0
                started = self._host.now
                with self._host.frame(TRAIN_STEP):
                    yield from self._step()
                self._host.annotate(f"ProfilerStep#{step}", started)
                self._host.now += self._cluster.host.between_steps

    def _step(self) -> Program:
        yield from self._fetch()
        for phase, batch in self._order:
            yield from self._forward(batch) if phase == "F" else self._backward(batch)
        self._optimize()

    def _delay(self, cause: str, planted: int) -> int:
        """Return the nanoseconds of a loss in this step: that of the whole cluster, and that of a straggler."""
        rank, step = self._rank, self._host.step
        total = planted if self._cluster.losses.hit(rank, step) else 0
        total += sum(s.delay for s in self._cluster.stragglers if s.cause == cause and s.hit(rank, step))
        return self._add_jitter(total)

    def _add_jitter(self, duration: int) -> int:
        jitter = self._cluster.host.jitter
        return round(duration * exp(jitter * next(self._host_normals))) if jitter and duration else duration

    def _factor(self, cause: str) -> float:
        hits = (s for s in self._cluster.stragglers if s.cause == cause and s.hit(self._rank, self._host.step))
        return max((s.factor for s in hits), default=1.0)

    def _fetch(self) -> Program:
        host, losses = self._host, self._cluster.losses
        wait = self._delay("late_data", losses.data)
        if wait:
            start = host.now
            host.now += wait
            host.annotate(DATALOADER, start)
            host.record.data_spans.append((start, host.now))
        if not losses.hit(self._rank, host.step):
            return
        if losses.copy_bytes and losses.pageable:
            yield from self._copy_pageable(losses.copy_bytes)
        elif losses.copy_bytes:
            duration = max(1, losses.copy_bytes // PCIE_GBS)
            self._copy("aten::copy_", "Memcpy HtoD (Pinned -> Device)", losses.copy_bytes, duration)
        if losses.memset_bytes:
            duration = max(1, losses.memset_bytes // MEMSET_GBS)
            self._copy("aten::zero_", "Memset (Device)", losses.memset_bytes, duration)

    def _forward(self, batch: int) -> Program:
        host = self._host
        hit = self._cluster.losses.hit(self._rank, host.step)
        self._launch_factor = self._cluster.losses.launch_factor if hit else 1
        started, layers, syncs = host.now, self._layers, self._cluster.losses.sync if hit and batch == 0 else 0
        synced = [(2 * number + 1) * layers // (2 * syncs) for number in range(syncs)]
        self._compile(self._cluster.losses.compile if hit and batch == 0 else 0)
        self._receive(RECV_FORWARD, self._place.stage - 1)
        for layer in range(layers):
            self._gather_units(range(layers), layer)
            for _ in range(synced.count(layer)):
                yield from self._item()
            if batch == self._cluster.microbatches - 1 and layer == layers - 1:
                self._stall(self._delay("host_stall", self._cluster.losses.python))
            for position, kernel in enumerate(self._layer_kernels()):
                self._next_sequence += 1
                self._sequences[batch, layer, position] = self._next_sequence
                self._compute(kernel, kernel.dims, position, sequence=self._next_sequence)
            self._reduce_tensor_parallel()
        self._send(SEND_FORWARD, self._place.stage + 1)
        self._launch_factor = 1
        if self._cluster.annotations and self._is_ddp:
            host.annotate("DistributedDataParallel.forward", started)

    def _backward(self, batch: int) -> Program:
        self._receive(RECV_BACKWARD, self._place.stage + 1)
        self._host.thread = AUTOGRAD
        first, last = batch == 0, batch == self._cluster.microbatches - 1
        reduces = last or self._cluster.reduce_always
        for layer in reversed(range(self._layers)):
            self._gather_units(range(self._layers - 1, -1, -1), layer)
            if first and layer == self._layers // 2:
                yield from self._allocate(self._delay("allocation", self._cluster.losses.alloc))
            if self._cluster.recompute:
                self._forward_again(batch, layer)
            for position, kernel in reversed(list(enumerate(self._layer_kernels()))):
                self._backward_op(kernel, position, self._sequences.pop((batch, layer, position)))
            self._reduce_tensor_parallel()
            if reduces and self._cluster.overlap:
                self._reduce_bucket(layer)
        self._host.thread = MAIN
        if reduces and not self._cluster.overlap:
            for layer in reversed(range(self._layers)):
                self._reduce_bucket(layer)
        if not last:
            # The next pass adds to gradients that have been reduced.
            self._awaited, self._buckets = self._awaited + self._buckets, []
        self._send(SEND_BACKWARD, self._place.stage - 1)

    def _forward_again(self, batch: int, layer: int) -> None:
        """Run a layer again as a checkpointed layer does, without drawing noise; its FLOPs are not those of the
        model."""
        host = self._host
        done = host.record.flops[host.step]
        host.begin("CheckpointFunctionBackward", backward=True)
        for position, kernel in enumerate(self._layer_kernels()):
            self._next_sequence += 1
            self._sequences[batch, layer, position] = self._next_sequence
            self._compute(kernel, kernel.dims, len(self._cluster.model.kernels), sequence=self._next_sequence)
        host.end()
        host.record.flops[host.step] = done

    def _optimize(self) -> None:
        model, started = self._cluster.model, self._host.now
        self._awaited += self._buckets
        if WEIGHT_GRADIENTS in self._host.last_on:
            self._awaited.append(self._host.last_on[WEIGHT_GRADIENTS])
        self._buckets = []
        group, sharding = self._place.data, self._cluster.sharding
        parts = len(group.ranks) if group is not None and sharding else 1
        for number in range(model.optimizer_kernels):
            op, kernel = FUSED_UPDATE, OPTIMIZER_KERNEL
            if not model.fused and not model.foreach:
                op, kernel = LOOP_UPDATE[number % len(LOOP_UPDATE)]
            elif not model.fused:
                op, kernel = "aten::_foreach_add_", FOREACH_KERNELS[number % len(FOREACH_KERNELS)]
            self._launch(op, kernel, self._noisy(model.optimizer_duration // parts), None)
        if not model.fused or self._cluster.annotations:
            self._host.annotate("Optimizer.step#AdamW.step", started)
        if group is not None and sharding in {1, 2}:
            self._awaited.append(self._gather(group, model.gradient_bytes * self._layers))

    def _layer_kernels(self) -> list[Kernel]:
        """Return the layer's kernels; a straggler with more work repeats some of them, without drawing noise."""
        kernels = self._cluster.model.kernels
        rows = self._factor("larger_batch")
        if rows > 1:
            kernels = tuple(kernel.scaled(rows) for kernel in kernels)
        factor = self._factor("more_work")
        extra = max(1, round((factor - 1) * len(kernels))) if factor > 1 else 0
        return [*kernels, *(kernels[index % len(kernels)] for index in range(extra))]

    def _noisy(self, duration: int, position: int = 0) -> int:
        if position < len(self._cluster.model.kernels):
            duration += int(duration * self._cluster.noise * next(self._normals))
        return max(1, int(duration * self._factor("slow_kernels")))

    def _compute(self, kernel: Kernel, dims: tuple[int, int, int] | None, position: int, sequence: int = -1) -> None:
        duration = self._noisy(kernel.duration, position)
        self._launch(f"aten::{kernel.forward_op}", kernel, duration, dims, sequence=sequence)
        self._host.record.flops[self._host.step] += kernel.flops

    def _backward_op(self, kernel: Kernel, position: int, sequence: int) -> None:
        host = self._host
        host.begin(f"{kernel.forward_op.capitalize()}Backward0", sequence=sequence, backward=True)
        if kernel.dims is None:
            self._compute(kernel, None, position)
        else:
            m, k, n = kernel.dims
            inputs_ready = [*self._awaited, host.last_on[COMPUTE]]
            self._compute(kernel, (m, n, k), position)
            if self._cluster.compute_streams == 1:
                self._compute(kernel, (k, m, n), position)
            else:
                self._weight_gradient(kernel, (k, m, n), position, inputs_ready)
        host.end()

    def _weight_gradient(
        self, kernel: Kernel, dims: tuple[int, int, int], position: int, inputs_ready: list[DeviceEvent]
    ) -> None:
        duration = self._noisy(kernel.duration, position)
        self._launch("aten::mm", kernel, duration, dims, stream=WEIGHT_GRADIENTS, needs=inputs_ready)
        self._host.record.flops[self._host.step] += kernel.flops

    def _launch(
        self,
        op: str,
        kernel: Kernel | str,
        duration: int,
        dims: tuple[int, int, int] | None,
        *,
        sequence: int = -1,
        stream: int = COMPUTE,
        needs: list[DeviceEvent] | None = None,
    ) -> None:
        host, costs = self._host, self._cluster.host
        if isinstance(kernel, str):
            name = kernel
            host.begin(op, sequence=sequence)
        else:
            name = kernel.name or (MATMUL_KERNEL if dims else ELEMENTWISE_KERNEL)
            host.begin(op, dims=dims, shape=kernel.shape, dtype=kernel.dtype, sequence=sequence)
        host.now += self._add_jitter(costs.dispatch) * self._launch_factor
        call = host.call("cudaLaunchKernel", costs.launch_call * self._launch_factor)
        host.enqueue(
            call,
            self._take_awaited() if needs is None else needs,
            role="compute",
            category="kernel",
            name=name,
            stream=stream,
            duration=duration,
        )
        host.now += costs.tail
        host.end()

    def _take_awaited(self) -> list[DeviceEvent]:
        awaited, self._awaited = self._awaited, []
        return awaited

    def _copy(self, op: str, name: str, size: int, duration: int) -> None:
        host, costs = self._host, self._cluster.host
        memset = name.startswith("Memset")
        host.begin(op)
        host.now += costs.dispatch
        call = host.call("cudaMemsetAsync" if memset else "cudaMemcpyAsync", costs.launch_call)
        category = "gpu_memset" if memset else "gpu_memcpy"
        self._enqueue_copy(call, category, name, duration, size)
        host.now += costs.tail
        host.end()

    def _copy_pageable(self, size: int) -> Program:
        """Run `batch.to(device)` from memory that is not pinned, so that the call waits until all is copied."""
        host, costs = self._host, self._cluster.host
        for op in ("aten::to", "aten::_to_copy", "aten::copy_"):
            host.begin(op)
        host.now += costs.dispatch
        call = host.call("cudaMemcpyAsync", costs.launch_call)
        duration = max(1, self._add_jitter(size // PAGEABLE_GBS))
        copy = self._enqueue_copy(call, "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", duration, size)
        yield from self._synchronize(copy)
        for _ in range(3):
            host.end()

    def _synchronize(self, awaited: DeviceEvent) -> Program:
        host, costs = self._host, self._cluster.host
        call = host.call("cudaStreamSynchronize", costs.launch_call)
        done = yield awaited
        host.extend(call, max(call.stop, done + costs.sync_return))
        host.record.sync_spans.append((call.start, call.stop))
        host.now += costs.tail

    def _stall(self, duration: int) -> None:
        if duration:
            with self._host.frame(FORMAT_METRICS), self._host.frame(DUMPS):
                self._host.now += duration

    def _compile(self, duration: int) -> None:
        if not duration:
            return
        host, start = self._host, self._host.now
        for name in COMPILING:
            host.begin(name)
        host.now += self._add_jitter(duration)
        host.record.compile_spans.append((start, host.now))
        for _ in COMPILING:
            host.end()

    def _enqueue_copy(self, call: HostEvent, category: str, name: str, duration: int, size: int) -> DeviceEvent:
        return self._host.enqueue(
            call,
            self._take_awaited(),
            role="copy",
            category=category,
            name=name,
            stream=COMPUTE,
            duration=duration,
            size=size,
        )

    def _item(self) -> Program:
        host, costs = self._host, self._cluster.host
        with host.frame(LOG_LOSS), host.frame(ITEM):
            host.begin("aten::item")
            host.begin(READ_BACK)
            host.now += costs.dispatch
            copy_call = host.call("cudaMemcpyAsync", costs.launch_call)
            copy = self._enqueue_copy(copy_call, "gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", ITEM_COPY, 2)
            yield from self._synchronize(copy)
            host.end()
            host.end()

    def _allocate(self, delay: int) -> Program:
        """Let the caching allocator return its blocks (cudaFree waits for the compute stream), then ask for more."""
        if not delay:
            return
        host = self._host
        host.begin("aten::empty")
        free = host.call("cudaFree", 1)
        done = yield host.last_on[COMPUTE]
        host.extend(free, max(free.stop, done) + delay // 2)
        allocation = host.call("cudaMalloc", delay - delay // 2)
        host.record.alloc_spans[host.thread].extend([(free.start, free.stop), (allocation.start, allocation.stop)])
        host.now += self._cluster.host.tail
        host.end()

    def _reduce_tensor_parallel(self) -> None:
        group = self._place.tensor
        if group is not None:
            needs = [self._host.last_on[COMPUTE]]
            size = self._cluster.model.activation_bytes
            self._awaited.append(self._communicate(group, "all_reduce", size, group.ranks, stream=TENSOR, needs=needs))

    def _bucket_of(self) -> list[int]:
        """Return the bucket of each layer; with sharded parameters it is also its unit."""
        model, layers = self._cluster.model, self._layers
        first, rest = model.first_bucket, max(1, layers - model.first_bucket)
        return [
            0 if place < first else bool(first) + (place - first) * (model.buckets - bool(first)) // rest
            for place in reversed(range(layers))
        ]

    def _gather_units(self, order: range, layer: int) -> None:
        """Gather units as FSDP does: when a unit begins, gather the one that is `prefetch` ahead, and wait for its own.
        A gather waits for the compute before it, so that only this many units are held at once."""
        group = self._place.data
        if group is None or self._cluster.sharding != 3:
            return
        bucket_of, ahead = self._bucket_of(), self._cluster.prefetch
        units = list(dict.fromkeys(bucket_of[index] for index in order))
        unit = units.index(bucket_of[layer])
        if next(index for index in order if bucket_of[index] == units[unit]) != layer:
            return
        if unit == 0:
            self._units = {}
        for wanted in range(0 if unit == 0 else unit + ahead, unit + ahead + 1):
            if wanted < len(units):
                size = self._cluster.model.gradient_bytes * bucket_of.count(units[wanted])
                self._units[wanted] = self._gather(group, size)
        self._host.call("cudaStreamWaitEvent", self._cluster.host.launch_call)
        self._awaited.append(self._units[unit])

    def _gather(self, group: ProcessGroup, size: int) -> DeviceEvent:
        needs = [self._host.last_on[COMPUTE]] if COMPUTE in self._host.last_on else []
        return self._communicate(group, "all_gather", size, group.ranks, stream=DATA, needs=needs)

    def _reduce_bucket(self, layer: int) -> None:
        """Reduce a bucket as DDP does: when its last gradient is ready, while the backward pass goes on."""
        group, model = self._place.data, self._cluster.model
        if group is None:
            return
        bucket_of = self._bucket_of()
        if layer and bucket_of[layer - 1] == bucket_of[layer]:
            return
        size = model.gradient_bytes * bucket_of.count(bucket_of[layer])
        needs = [self._host.last_on[stream] for stream in (COMPUTE, WEIGHT_GRADIENTS) if stream in self._host.last_on]
        op: CollectiveOp = "reduce_scatter" if self._cluster.sharding > 1 else "all_reduce"
        stream = DATA + 100 * (len(self._buckets) % self._cluster.comm_streams)
        members = group.ranks if self._cluster.synchronous else (self._rank,)
        for piece in range(model.pieces):
            share = 2 * (size // 2 // model.pieces)
            part = share if piece else size - share * (model.pieces - 1)
            self._buckets.append(self._communicate(group, op, part, members, stream=stream, needs=needs))

    def _receive(self, stream: int, stage: int) -> None:
        group = self._place.pipeline
        if group is not None and 0 <= stage < len(group.ranks):
            members = (group.ranks[stage], self._rank)
            size = self._cluster.model.activation_bytes
            self._awaited.append(self._communicate(group, "send_recv", size, members, stream=stream, needs=[]))

    def _send(self, stream: int, stage: int) -> None:
        group = self._place.pipeline
        if group is not None and 0 <= stage < len(group.ranks):
            members = (self._rank, group.ranks[stage])
            # What is sent is only ready once a tensor-parallel all-reduce after the last layer has ended.
            needs = [*self._awaited, self._host.last_on[COMPUTE]]
            size = self._cluster.model.activation_bytes
            self._communicate(group, "send_recv", size, members, stream=stream, needs=needs)

    def _communicate(
        self,
        group: ProcessGroup,
        op: CollectiveOp,
        size: int,
        members: tuple[int, ...],
        *,
        stream: int,
        needs: list[DeviceEvent],
    ) -> DeviceEvent:
        host, costs = self._host, self._cluster.host
        collective: SyntheticCollective = self._meetings.join(self._rank, group, op, size, members)
        name, kernel = COLLECTIVES.get(op, ("c10d::allreduce_", ALL_REDUCE_KERNEL))
        if op == "send_recv":
            name, kernel = ("c10d::send" if members[0] == self._rank else "c10d::recv_"), SEND_RECV_KERNEL
        host.begin(name)
        host.begin("record_param_comms", collective=collective)
        host.now += self._add_jitter(costs.dispatch)
        call = host.call("cudaLaunchKernelExC", costs.launch_call)
        event = host.enqueue(
            call,
            needs,
            role="comm",
            category="kernel",
            name=kernel,
            stream=stream,
            duration=collective.duration,
            collective=collective,
        )
        host.end()
        host.now += costs.tail
        host.end()
        return event
