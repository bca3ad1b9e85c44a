"""Mini exports of Nsight Systems: rows given in Python, written as SQLite with the tables that have any."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

HOST = 1 << 48
BEGAN = 1_700_000_000_000_000_000
"""Unix time at which sessions begin; the machine's own clock shows `CLOCK` then."""
CLOCK = 5_000
TABLE = "CUPTI_ACTIVITY_KIND_{}"


def global_pid(pid: int) -> int:
    return HOST | pid << 24


class Export:
    """Rows by table; columns are those of its first row."""

    def __init__(self, host: str = "node7", devices: tuple[str, ...] = ("NVIDIA H100 80GB HBM3",)) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self._texts: dict[str, int] = {}
        self._correlation = 0
        self.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=BEGAN, systemClockNs=CLOCK)
        self.row("TARGET_INFO_SYSTEM_ENV", name="Hostname", value=host)
        for number, name in enumerate(devices):
            self.row("TARGET_INFO_GPU", id=number, name=name, smCount=132, totalMemory=85 << 30)

    def row(self, table: str, **columns: Any) -> None:
        self.tables.setdefault(table, []).append(columns)

    def text(self, value: str) -> int:
        return self._texts.setdefault(value, len(self._texts) + 1)

    def call(self, name: str, start: Any, end: Any, pid: int = 100, **columns: Any) -> int:
        """A call of the runtime; returns its correlation."""
        self._correlation += 1
        row = {"start": start, "end": end, "globalTid": global_pid(pid) | pid, "correlationId": self._correlation}
        self.row(TABLE.format("RUNTIME"), **row | {"nameId": self.text(name)} | columns)
        return self._correlation

    def kernel(self, name: str, start: Any, end: Any, correlation: int | None = None, **columns: Any) -> None:
        row = self._placed(start, end, correlation) | {
            "demangledName": self.text(name),
            "shortName": self.text("short"),
        }
        row |= {"registersPerThread": 96, "staticSharedMemory": 1024, "dynamicSharedMemory": 24}
        row |= {f"{what}{axis}": size for what, size in (("grid", 8), ("block", 128)) for axis in "XYZ"}
        self.row(TABLE.format("KERNEL"), **self._own(row, columns))

    def launched(self, name: str, called: int, start: int, end: int, **columns: Any) -> None:
        """A kernel, and the call that launched it 5 ns long."""
        pid = columns.get("pid", 100)
        self.kernel(name, start, end, self.call("cudaLaunchKernel_v7000", called, called + 5, pid), **columns)

    def copy(self, start: Any, end: Any, correlation: int | None = None, **columns: Any) -> None:
        row = self._placed(start, end, correlation) | {"bytes": 4096, "copyKind": 1, "srcKind": 0, "dstKind": 2}
        self.row(TABLE.format("MEMCPY"), **self._own(row, columns))

    def fill(self, start: Any, end: Any, correlation: int | None = None, **columns: Any) -> None:
        row = self._placed(start, end, correlation) | {"bytes": 64, "memKind": 2}
        self.row(TABLE.format("MEMSET"), **self._own(row, columns))

    def range(self, text: str | None, start: Any, end: Any, pid: int = 100, **columns: Any) -> None:
        row = {"start": start, "end": end, "eventType": 59, "text": text, "globalTid": global_pid(pid) | pid}
        self.row("NVTX_EVENTS", **row | {"textId": None, "domainId": 0, "jsonText": None} | columns)

    @staticmethod
    def _placed(start: Any, end: Any, correlation: int | None) -> dict[str, Any]:
        place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": global_pid(100)}
        return {"start": start, "end": end, "correlationId": correlation} | place

    @staticmethod
    def _own(row: dict[str, Any], columns: dict[str, Any]) -> dict[str, Any]:
        names = {"device": "deviceId", "stream": "streamId", "context": "contextId"}
        own = {names.get(name, name): value for name, value in columns.items() if name != "pid"}
        return row | own | ({"globalPid": global_pid(columns["pid"])} if "pid" in columns else {})

    def write(self, path: Path, *statements: str) -> Path:
        """The file, after some more statements of SQL."""
        connection = sqlite3.connect(path)
        connection.execute("create table StringIds (id integer, value text)")
        connection.executemany("insert into StringIds values (?, ?)", [(n, text) for text, n in self._texts.items()])
        for table, rows in self.tables.items():
            names = list(rows[0])
            quoted = ", ".join(f'"{name}"' for name in names)
            connection.execute(f"create table {table} ({quoted})")
            marks = ", ".join("?" * len(names))
            connection.executemany(f"insert into {table} values ({marks})", [[row[n] for n in names] for row in rows])
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        return path


def small_export() -> Export:
    """Two steps of one rank with an op, an annotation, a collective, a copy and a fill."""
    made = Export()
    for step, at in ((11, 10_000), (12, 11_000)):
        made.range(f"step {step}", at, at + 900)
        made.range("forward", at + 100, at + 500)
        made.range(f"aten::mm, seq = {step}, op_id = {at}", at + 110, at + 200)
        made.launched("gemm<int>", at + 120, at + 200, at + 500)
        made.range(f"nccl:all_reduce, op_id = {at + 1}", at + 510, at + 600)
        made.launched("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", at + 520, at + 550, at + 800, stream=20)
        made.copy(at + 810, at + 820, made.call("cudaMemcpyAsync_v3020", at + 610, at + 620))
        made.fill(at + 830, at + 840, made.call("cudaMemsetAsync_v3020", at + 630, at + 640))
    return made


def endless(path: Path, levels: int = 12) -> Path:
    """The export with a table whose pages lead to one page a hundred times each, on so many levels."""
    size, width = 1024, 100
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma page_size = {size}")
        connection.execute("vacuum")
        query = "select rootpage from sqlite_master where name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
        (root,) = connection.execute(query).fetchone()
    pages = [path.read_bytes()[at : at + size] for at in range(0, path.stat().st_size, size)]
    pages.append(pages[root - 1])
    for _ in range(levels):
        child, cells = len(pages), size - 5 * width
        head = struct.pack(">BHHHBI", 5, 0, width, cells, 0, child)
        places = struct.pack(f">{width}H", *range(cells, size, 5))
        pages.append((head + places).ljust(cells, b"\0") + struct.pack(">IB", child, 1) * width)
    pages[root - 1] = pages[-1]
    pages[0] = pages[0][:28] + struct.pack(">I", len(pages)) + pages[0][32:]
    path.write_bytes(b"".join(pages))
    return path
