"""A large Kineto trace for measuring, in the layout and with the mix of events of a real one.

The mix follows profiles of compiled transformer training on eight GPUs: of 100 events about 31 are operators,
19 runtime calls, 16 device records and 33 arrows, at 320 bytes each. Times and shapes are made up from a seed;
what an analysis would find in them means nothing.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

RANKS = 8
PROCESS, MAIN, AUTOGRAD = 4711, 4711, 4802
COMPUTE, COMMUNICATION = 7, 23
_LAYERS = 16
_MICRO_BATCHES = 18

_ATEN = [
    "as_strided", "select", "slice", "view", "t", "transpose", "mm", "bmm", "addmm", "copy_", "empty",
    "empty_strided", "empty_like", "to", "_to_copy", "add", "add_", "mul", "mul_", "div", "div_", "sum", "mean",
    "pow", "sqrt", "rsqrt", "neg", "sigmoid", "silu", "gelu", "softmax", "_softmax", "log_softmax", "embedding",
    "index_select", "gather", "scatter_add_", "cat", "split", "split_with_sizes", "permute", "reshape",
    "expand", "unsqueeze", "squeeze", "detach", "contiguous", "clone", "zeros", "zero_", "ones", "fill_",
    "full", "arange", "where", "eq", "lt", "gt", "maximum", "clamp", "lerp_", "addcmul_", "addcdiv_",
    "_foreach_add_", "_foreach_mul_", "_fused_adamw_", "linear", "matmul", "layer_norm", "native_layer_norm",
    "scaled_dot_product_attention", "dropout", "cross_entropy_loss",
]  # fmt: skip
_FUSED = [
    "add", "mul", "sum", "view", "to_copy", "silu", "neg", "rsqrt", "mean", "pow", "softmax", "where", "eq",
    "embedding", "native_layer_norm", "expand", "slice_backward", "cat", "div", "sigmoid_backward", "clamp",
]  # fmt: skip
_TYPES = ("c10::BFloat16", "float", "long int", "c10::Float8_e4m3fn", "int")
_FUNCTORS = (
    "CUDAFunctor_add",
    "BinaryFunctor",
    "AUnaryFunctor",
    "FillFunctor",
    "SiluFunctor",
    "MulFunctor",
    "NegFunctor",
)
_COLLECTIVES = (
    ("_all_gather_base", "AllGather"),
    ("_reduce_scatter_base", "ReduceScatter"),
    ("allreduce", "AllReduce"),
)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as text: what stands before its thread, and its arguments."""

    head: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Kernel:
    head: str
    shape: str
    mean_ns: int


def write_trace(path: Path, megabytes: int, rank: int = 0, seed: int = 0) -> int:
    """Write a trace of at least that many MB; returns its number of events. Takes about 40 s per GB."""
    partial = path.with_suffix(".part")
    with partial.open("w", encoding="ascii") as out, tempfile.TemporaryFile("w+", dir=path.parent) as device:
        trace = _Trace(rank, random.Random(f"{seed}-{rank}"), out, device)
        trace.write(megabytes * 1_000_000)
    partial.rename(path)
    return trace.events


class _Trace:
    """Kineto writes operators first, then what the device library recorded; so there are two files until the end."""

    def __init__(self, rank: int, chance: random.Random, host: IO[str], device: IO[str]) -> None:
        self.rank = rank
        self.chance = chance
        self.host, self.device = host, device
        self.operators = _operators(chance)
        self.kernels = _kernels(chance)
        self.events = 0
        self.now = 5_000_000_000_000_000
        self.stream_free = {COMPUTE: self.now, COMMUNICATION: self.now}
        self.external = 1024
        self.correlation = 30_000
        self.thread = MAIN

    def write(self, least_bytes: int) -> None:
        self.host.write(_header(self.rank))
        began, step = self.now, 0
        while self.host.tell() + self.device.tell() < least_bytes:
            self._step(step)
            step += 1
        self._trailer(began)
        self.device.seek(0)
        while block := self.device.read(1 << 22):
            self.host.write(block)
        self.host.write('\n  ],\n  "traceName": "trace.json"\n}\n')

    def _put(self, file: IO[str], text: str) -> None:
        file.write(text if self.events == 0 else ",\n" + text)
        self.events += 1

    def _step(self, step: int) -> None:
        began = self.now
        for micro_batch in range(_MICRO_BATCHES):
            self.thread = MAIN if micro_batch % 3 == 0 else AUTOGRAD
            for layer in range(_LAYERS):
                self._layer(micro_batch * _LAYERS + layer)
        self.thread = MAIN
        self._annotation("Optimizer.step#AdamW.step", self.now - 900_000, 900_000)
        self._annotation(f"ProfilerStep#{step + 10}", began, self.now - began)
        self.now += 50_000

    def _layer(self, number: int) -> None:
        """One layer's pass: views and allocations, launches, copies, and every few layers a collective."""
        began = self.now
        for _ in range(24):
            self._operator(self._any_operator())
            if self.chance.random() < 0.9:
                self._operator(self._any_operator())
            self._launch()
        if number % 6 == 0:
            self._collective(_COLLECTIVES[number // 6 % 3], number)
        if number % 12 == 0:
            name = f"## Call CompiledFxGraph {number % 9:03d}{'kq7wz2bd5xnv3mfh6tcj4rsy' * 2}a ##"
            self._annotation(name, began, self.now - began)
        if number % 8 == 0:
            self._forward_backward(began)

    def _any_operator(self) -> Operator:
        return self.operators[int(self.chance.random() ** 2.5 * len(self.operators))]

    def _operator(self, operator: Operator) -> None:
        self.external += 1
        dur = int(self.chance.random() * 60_000) + 800
        self._put(
            self.host,
            f'{operator.head}{self.thread},\n    "ts": {_us(self.now)}, "dur": {_us(dur)},\n    "args": {{\n'
            f'      "External id": {self.external},"Record function id": 0, '
            f'{operator.arguments}, "Ev Idx": {self.external - 1025}\n    }}\n  }}',
        )
        self.now += 1_500

    def _annotation(self, name: str, start: int, dur: int) -> None:
        self.external += 1
        self._put(
            self.host,
            f'  {{\n    "ph": "X", "cat": "user_annotation", "name": "{name}", '
            f'"pid": {PROCESS}, "tid": {self.thread},\n'
            f'    "ts": {_us(start)}, "dur": {_us(dur)},\n    "args": {{\n'
            f'      "External id": {self.external},"Record function id": 0, '
            f'"Ev Idx": {self.external - 1025}\n    }}\n  }}',
        )
        self._put(
            self.device,
            f'  {{\n    "ph": "X", "cat": "gpu_user_annotation", "name": "{name}", '
            f'"pid": {self.rank}, "tid": {COMPUTE},\n'
            f'    "ts": {_us(start + 4_000)}, "dur": {_us(dur)},\n    "args": {{\n'
            f'      "External id": {self.external}\n    }}\n  }}',
        )

    def _forward_backward(self, began: int) -> None:
        number = self.external
        for phase, thread, at in (("s", MAIN, began), ("f", AUTOGRAD, self.now)):
            self._put(
                self.host,
                f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {PROCESS}, "tid": {thread}, "ts": {_us(at)},\n'
                f'    "cat": "fwdbwd", "name": "fwdbwd"{_BINDING[phase]}\n  }}',
            )

    def _launch(self) -> None:
        kind = self.chance.random()
        if kind < 0.1:
            self._runtime("cuda_runtime", "cudaStreamWaitEvent", 147)
        if kind < 0.77:
            driver = kind > 0.35
            self._runtime(*(("cuda_driver", "cuLaunchKernel", 307) if driver else _LAUNCH), arrow=True)
            kernel = self.kernels[int(self.chance.random() ** 2 * len(self.kernels))]
            dur = int(kernel.mean_ns * (0.8 + 0.4 * self.chance.random()))
            self._on_device(kernel.head, COMPUTE, dur, kernel.shape)
        else:
            name, text = _COPY if kind < 0.9 else _FILL
            self._runtime("cuda_runtime", name, 41, arrow=True)
            size = 1 << int(self.chance.random() * 24)
            rate = f'"bytes": {size}, "memory bandwidth (GB/s)": {size / 1500!r}'
            self._on_device(text, COMPUTE, 1500, rate, is_copy=True)

    def _runtime(self, category: str, name: str, callback: int, arrow: bool = False) -> None:
        self.correlation += 7
        self.now += 2_200
        self._put(
            self.device,
            f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {PROCESS}, "tid": {self.thread},\n'
            f'    "ts": {_us(self.now)}, "dur": {_us(1_700 + self.correlation % 997)},\n    "args": {{\n'
            f'      "External id": {self.external},      "cbid": {callback}, '
            f'"correlation": {self.correlation}\n    }}\n  }}',
        )
        if arrow:
            self._arrow("s", PROCESS, self.thread, self.now)

    def _arrow(self, phase: str, process: int, thread: int, at: int) -> None:
        self._put(
            self.device,
            f'  {{\n    "ph": "{phase}", "id": {self.correlation}, '
            f'"pid": {process}, "tid": {thread}, "ts": {_us(at)},\n'
            f'    "cat": "ac2g", "name": "ac2g"{_BINDING[phase]}\n  }}',
        )

    def _on_device(self, head: str, stream: int, dur: int, details: str, is_copy: bool = False) -> None:
        start = max(self.stream_free[stream] + 900, self.now + 4_500)
        self.stream_free[stream] = start + dur
        queued = "" if is_copy else '"queued": 0, '
        self._put(
            self.device,
            f'{head}{self.rank}, "tid": {stream},\n    "ts": {_us(start)}, "dur": {_us(dur)},\n    "args": {{\n'
            f'      "External id": {self.external},      {queued}"device": {self.rank}, "context": 1,      '
            f'"stream": {stream}, "correlation": {self.correlation},      {details}\n    }}\n  }}',
        )
        self._arrow("f", self.rank, stream, start)

    def _collective(self, collective: tuple[str, str], number: int) -> None:
        name, kernel = collective
        elements = 1 << (16 + number % 9)
        members = "[" + ", ".join(map(str, range(RANKS))) + "]"
        shared = (
            f'"Collective name": "{name}", "In msg nelems": {elements}, "Out msg nelems": {elements // RANKS}, '
            f'"Group size": {RANKS}, "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", '
            f'"Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "{members}"'
        )
        dims = f'"Input Dims": [[{elements}], [], [], []], "Input Strides": [[1], [], [], []]'
        types = f'"Input type": ["c10::BFloat16", "", "", "Scalar"], "Concrete Inputs": ["", "", "", "{self.rank}"]'
        call = f'{dims}, {types}, {shared}, "Rank": {self.rank}, "Global rank start": 0, "Global rank stride": 1'
        self._operator(Operator(_operator_head("record_param_comms"), call))
        self._annotation(f"nccl:{name}", self.now, 80_000)
        self._runtime("cuda_runtime", "cudaLaunchKernelExC", 430, arrow=True)
        title = f"ncclDevKernel_{kernel}_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        shape = _shape((24, 1, 1), (544, 1, 1), 96, 103_808)
        self._on_device(_device_head("kernel", title), COMMUNICATION, 40_000 + elements // 50, f"{shape}, {shared}")

    def _trailer(self, began: int) -> None:
        threads = ((PROCESS, MAIN, "python"), (PROCESS, AUTOGRAD, "pt_autograd_0"), (self.rank, COMPUTE, "stream 7 "))
        for process, thread, name in threads:
            self._put(
                self.device,
                f'  {{\n    "name": "thread_name", "ph": "M", "ts": {_us(began)}, "pid": {process}, "tid": {thread},\n'
                f'    "args": {{\n      "name": "{name}"\n    }}\n  }}',
            )
        self._put(
            self.device,
            f'  {{\n    "ph": "X", "cat": "Trace", "ts": {_us(began)}, "dur": {_us(self.now - began)},\n'
            '    "pid": "Spans", "tid": "PyTorch Profiler",\n    "name": "PyTorch Profiler (0)",\n'
            '    "args": {\n      "Op count": 0\n    }\n  }',
        )


_BINDING = {"s": "", "f": ', "bp": "e"'}
_LAUNCH = ("cuda_runtime", "cudaLaunchKernel", 211)


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _operator_head(name: str) -> str:
    return f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": {PROCESS}, "tid": '


def _device_head(category: str, name: str) -> str:
    return f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": '


_COPY = ("cudaMemcpyAsync", _device_head("gpu_memcpy", "Memcpy DtoD (Device -> Device)"))
_FILL = ("cudaMemsetAsync", _device_head("gpu_memset", "Memset (Device)"))


def _shape(grid: tuple[int, ...], block: tuple[int, ...], registers: int, shared: int) -> str:
    blocks = grid[0] * grid[1] / 132
    return (
        f'"registers per thread": {registers},      "shared memory": {shared},      '
        f'"blocks per SM": {blocks:.6f},      '
        f'"warps per SM": {blocks * block[0] / 32:.6f},      "grid": {list(grid)},      "block": {list(block)},      '
        f'"est. achieved occupancy %": {min(100, registers)}'
    )


def _operators(chance: random.Random) -> list[Operator]:
    """A few thousand operators with their shapes, of some two hundred names; the first ones are the most frequent."""
    names = [f"aten::{name}" for name in _ATEN] + [f"{name.title()}Backward0" for name in _ATEN[:30]]
    operators = []
    for number in range(2400):
        if chance.random() < 0.84:
            operators.append(
                Operator(_operator_head(chance.choice(names)), _inputs(chance, chance.choice((1, 1, 2, 3))))
            )
        else:
            name = _fused_name(number % 90)
            operators.append(Operator(_operator_head(name), _inputs(chance, 6) + _compiled(name, number)))
    return operators


def _inputs(chance: random.Random, count: int) -> str:
    sizes = [[1 << chance.randrange(4, 16) for _ in range(chance.randrange(1, 4))] for _ in range(count)]
    strides = [[*(size[i + 1] for i in range(len(size) - 1)), 1] for size in sizes]
    types = ", ".join(f'"{chance.choice(_TYPES)}"' for _ in sizes)
    scalars = ", ".join('""' if chance.random() < 0.6 else f'"{chance.randrange(1 << 20)}"' for _ in sizes)
    return f'"Concrete Inputs": [{scalars}], "Input type": [{types}], "Input Strides": {strides}, "Input Dims": {sizes}'


def _compiled(name: str, number: int) -> str:
    digest = f"c{number:04d}" + "h7v2k5qmx3wz6tnb4rjd" * 2 + "f3lqa"
    return (
        f', "num_warps": 8, "stream": {COMPUTE}, "kernel_backend": "triton", "kernel_name": "{name}", '
        f'"kernel_kwargs": "XBLOCK=1,R0_BLOCK=2048", "num_stages": 1, '
        f'"kernel_file": "/tmp/torchinductor_user/{digest[1:3]}/{digest}.py", "kernel_hash": "{digest}"'
    )


def _fused_name(number: int) -> str:
    chance = random.Random(number)
    parts = "_".join(chance.choice(_FUSED) for _ in range(chance.randrange(2, 12)))
    return f"triton_{chance.choice(('poi', 'red', 'per'))}_fused_{parts}_{number}"


def _kernels(chance: random.Random) -> list[Kernel]:
    return [
        Kernel(_device_head("kernel", name), shape, chance.choice((1_500, 3_000, 8_000, 40_000)))
        for name in _kernel_names(chance)
        for shape in (
            _shape((1 << chance.randrange(3, 12), chance.choice((1, 12)), 1), (128, 1, 1), 40, 2048),
            _shape((132, 1, 1), (chance.choice((256, 384)), 1, 1), 168, 213_244),
        )
    ]


def _kernel_names(chance: random.Random) -> Iterator[str]:
    for number in range(90):
        yield _fused_name(number)
    for m in (64, 128, 256):
        for n in (64, 96, 128, 160):
            yield f"nvjet_tst_{m}x{n}_64x{chance.randrange(3, 9)}_2x1_v_bz_coopA_{chance.choice(('NNT', 'TNT', 'NTN'))}"
    for functor in _FUNCTORS:
        for kind in _TYPES[:4]:
            full = f"at::native::{functor}<{kind}, {kind}, {kind}, at::native::binary_internal::{functor}<float>>"
            pointers = "std::array<char*, 3ul>"
            for width in (2, 4):
                name = f"vectorized_elementwise_kernel<{width}, {full}, {pointers}>(int, {full}, {pointers})"
                yield f"void at::native::{name}"


def _header(rank: int) -> str:
    devices = ",\n".join(
        f'    {{\n      "id": {index}, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85028372480,\n'
        '      "computeMajor": 9, "computeMinor": 0,\n'
        '      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n'
        '      "regsPerBlock": 65536, "warpSize": 32,\n'
        '      "sharedMemPerBlock": 49152, "numSms": 132\n'
        '    , "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472\n'
        "    }"
        for index in range(RANKS)
    )
    members = list(range(RANKS))
    return (
        f'\n  {{\n    "schemaVersion": 1,\n    "deviceProperties": [\n{devices}\n    ],\n'
        '      "cupti_version": 24,\n      "cuda_runtime_version": 12060,\n      "cuda_driver_version": 12080,\n'
        f'      "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {RANKS}, "pg_count": 1, '
        f'"pg_config": [{{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": {RANKS}, '
        f'"ranks": {members}}}], "nccl_version": "2.27.5"}},\n'
        '      "record_shapes": 1,\n      "trace_id": "0123456789ABCDEF0123456789ABCDEF",\n'
        '  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1759300074000000000,\n  "traceEvents": [\n'
    )
