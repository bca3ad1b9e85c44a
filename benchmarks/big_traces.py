"""The runs of big_cluster.py as their ranks would have written them: a compressed Kineto trace for each.

    python benchmarks/big_traces.py TRACES --ranks 1000 --layers 80 --steps 20

Prints the truth, as big_cluster.py does, and how many events there are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from big_cluster import (
    ANNOTATION,
    BASE_TIME,
    COMM,
    DATA,
    DEVICE_KERNEL,
    NAMES,
    NULL,
    OP,
    Rows,
    Shape,
    Truth,
    asked,
    make_truth,
    rows_of,
    simulate,
)
from isal import igzip

_CATEGORY = {ANNOTATION: "user_annotation", OP: "cpu_op", DEVICE_KERNEL: "kernel", COMM: "kernel"}
_STREAMS = (0, 7, 20, 24)
_AT_ONCE = 64
_BASE = BASE_TIME - 5_000_000_000_000_000
"""Times are written since then: as many digits as in a recorded trace."""


def write_traces(folder: Path, shape: Shape, seed: int = 0) -> tuple[Truth, int]:
    """Returns the truth and the number of events."""
    draw = np.random.default_rng([seed, shape.ranks])
    truth = make_truth(shape, draw)
    time, events = simulate(truth, shape, draw), 0
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, shape.ranks, _AT_ONCE):
        own = np.arange(first, min(first + _AT_ONCE, shape.ranks))
        rows = rows_of(time, truth, shape, own, draw)
        for place, rank in enumerate(own.tolist()):
            writer = _Writer(shape, rank)
            texts = list(writer.events(rows, place))
            events += len(texts)
            path = folder / f"host{rank // shape.host:04d}_{1000 + rank}.{BASE_TIME}.pt.trace.json.gz"
            with igzip.open(path, "wb", compresslevel=1) as out:
                out.write(f"{writer.head()}{','.join(texts)}]}}\n".encode())
    return truth, events


@dataclass(frozen=True, slots=True)
class _Writer:
    shape: Shape
    rank: int

    def head(self) -> str:
        groups = [{"pg_name": name, "pg_desc": described, "backend_config": "cuda:nccl", "pg_size": len(ranks)}
                  | {"ranks": list(ranks)} for name, described, ranks in self._groups()]  # fmt: skip
        known = {"backend": "nccl", "rank": self.rank, "world_size": self.shape.ranks, "pg_count": 3}
        devices = [{"id": index, "name": "NVIDIA H100 80GB HBM3"} for index in range(self.shape.host)]
        return (
            f'{{"schemaVersion": 1, "deviceProperties": {json.dumps(devices)}, '
            f'"distributedInfo": {json.dumps(known | {"pg_config": groups})},\n'
            f'"displayTimeUnit": "ms", "baseTimeNanoseconds": {_BASE}, "traceEvents": [\n'
        )

    def events(self, rows: Rows, place: int) -> Iterator[str]:
        names = (*NAMES, *(f"ProfilerStep#{number}" for number in self.shape.numbers.tolist()))
        call, process, device = self._calls(), 1000 + self.rank, self.rank % self.shape.host
        columns = (rows.start[place] - _BASE, rows.dur[place], rows.kind, rows.name, rows.lane, rows.correlation)
        seq = [0] * len(_STREAMS)
        is_kept = rows.kept[place].tolist()
        for row, (start, dur, kind, name, lane, correlation, op) in enumerate(
            zip(*(column.tolist() for column in (*columns, rows.op)), strict=True)
        ):
            if kind == COMM:
                seq[lane] += 1
            if not is_kept[row]:
                continue
            on_device = kind >= DEVICE_KERNEL
            where = (device, _STREAMS[lane]) if on_device else (process, process)
            facts = [] if op == NULL else [f'"External id": {op}']
            facts += [] if correlation == NULL else [f'"correlation": {correlation}']
            if on_device:
                facts.append(f'"device": {device}, "stream": {_STREAMS[lane]}')
            if kind == COMM:
                facts.append(f'{call[lane == DATA]}, "Seq": {seq[lane]}')
            yield (
                f'{{"ph": "X", "cat": "{_CATEGORY.get(kind, "cuda_runtime")}", "name": "{names[name]}", '
                f'"pid": {where[0]}, "tid": {where[1]}, '
                f'"ts": {start // 1000}.{start % 1000:03d}, "dur": {dur // 1000}.{dur % 1000:03d}, '
                f'"args": {{{", ".join(facts)}}}}}\n'
            )

    def _groups(self) -> tuple[tuple[str, str, range], ...]:
        host, hosts = self.shape.host, self.shape.hosts
        first = self.rank - self.rank % host
        return (
            ("0", "default_pg", range(self.shape.ranks)),
            (str(1 + self.rank // host), "mesh_tp", range(first, first + host)),
            (str(1 + hosts + self.rank % host), "mesh_dp", range(self.rank % host, self.shape.ranks, host)),
        )

    def _calls(self) -> tuple[str, str]:
        """Arguments of a collective of the tensor group, and of the data group."""
        _, tensor, data = (
            f'"Collective name": "allreduce", "In msg nelems": 500000, "Out msg nelems": 500000, "dtype": "BFloat16", '
            f'"Group size": {len(ranks)}, "Process Group Name": "{name}", "Process Group Description": "{described}", '
            f'"Process Group Ranks": "[{", ".join(map(str, ranks))}]"'
            for name, described, ranks in self._groups()
        )
        return tensor, data


def main() -> int:
    truth, events = write_traces(*asked(__doc__, "TRACES"))
    print(json.dumps(asdict(truth) | {"events": events}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
