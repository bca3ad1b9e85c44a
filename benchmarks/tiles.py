"""Long traces made from short real ones: the events of a trace, repeated, as if the job had gone on.

    python benchmarks/tiles.py ../shared/traces FOLDER --megabytes 150

Each copy is later in time and has correlations, external ids, sequence numbers, arrows and step numbers of its own. The
text is otherwise as the profiler wrote it. Each trace is written in both time bases: `unix`, microseconds of 16 digits,
and `relative`, microseconds since `baseTimeNanoseconds`. The traces belong to others, so tiles are never committed.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

TRACES: Final = {
    "v100": "facebookresearch__HolisticTraceAnalysis/trace_diff__test__test.json.gz",
    "b200": "sgl-project__sglang/gpt-oss-120b_B200_TP8_bs64_il4096/bs-64-*-TP-0-EXTEND.trace.json.gz",
    "mi300x": "AMD-AGI__TraceLens/mi300_resnet_act_checkpoint.json.gz",
    "h100": "KellerJordan__modded-nanogpt/2025-12-11_*/*-rank0-chrome-trace.json.gz",
}
"""A name for each trace, and where it is in the folder of shared traces."""
BASES: Final = ("unix", "relative")
_NUMBER: Final = re.compile(
    rb'("(?:ts|id|correlation|[Ee]xternal id|Sequence number|Ev Idx|wait_on_cuda_event_record_corr_id)"\s*:\s*'
    rb'|"ProfilerStep#)(\d+)'
)
"""A number that differs between copies, and what it is."""
_BASE: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')
_UNIX_US: Final = 10**15
"""Microseconds of 16 digits are times since 1970, from 2001 on."""
_RELATIVE_US: Final = 10**13
_EARLIER_US: Final = 86_400 * 10**6 * 90
"""Kineto counts from a fixed day, up to three months back."""
_PAUSE_US: Final = 1_000


class _Document(msgspec.Struct):
    traceEvents: msgspec.Raw  # noqa: N815  the name in the file


class _Tile(NamedTuple):
    """A trace in pieces: texts with a number between each two."""

    before: bytes
    after: bytes
    texts: list[bytes]
    numbers: list[int]
    kinds: list[bytes]
    """`ts`, `step`, or `number`."""


def write_tile(source: Path, target: Path, base: str, megabytes: int) -> int:
    """Write a trace of at least this size; return the number of copies."""
    tile = _split(source.read_bytes())
    moved = _moved(tile, base)
    written = copies = 0
    partial = target.with_suffix(".part")
    with partial.open("wb") as file:
        file.write(_with_base(tile.before, moved))
        for text in _copies(tile, moved):
            if written >= megabytes * 1_000_000:
                break
            file.write(b",\n  " * bool(copies) + text)
            written, copies = written + len(text), copies + 1
        after = _with_base(tile.after, moved)
        if not _BASE.search(tile.before + tile.after):
            after = (
                after.replace(b"]", b'],\n  "baseTimeNanoseconds": %d' % (-moved * 1_000), 1) if moved < 0 else after
            )
        file.write(after)
    partial.rename(target)
    return copies


def _split(data: bytes) -> _Tile:
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    events = bytes(msgspec.json.decode(text, type=_Document).traceEvents)
    at = text.index(events)
    parts = _NUMBER.split(events[1:-1].strip())
    texts = [before + key for before, key in zip(parts[0:-1:3], parts[1::3], strict=True)]
    kinds = [b"ts" if b'"ts"' in key else b"step" if b"#" in key else b"number" for key in parts[1::3]]
    numbers = list(map(int, parts[2::3]))
    return _Tile(text[: at + 1] + b"\n  ", b"\n  ]" + text[at + len(events) :], [*texts, parts[-1]], numbers, kinds)


def _moved(tile: _Tile, base: str) -> int:
    """Return how many microseconds to add to each time so that it is in the given base."""
    first = min(number for number, kind in zip(tile.numbers, tile.kinds, strict=True) if kind == b"ts")
    found = _BASE.search(tile.before + tile.after)
    since = int(found[1]) // 1_000 if found else 0
    if base == "unix":
        return 0 if first >= _UNIX_US else since or 1_700_000_000_000_000
    return _EARLIER_US - first if first >= _RELATIVE_US else 0


def _with_base(text: bytes, moved: int) -> bytes:
    return _BASE.sub(lambda found: b'"baseTimeNanoseconds": %d' % (int(found[1]) - moved * 1_000), text)


def _copies(tile: _Tile, moved: int) -> Iterator[bytes]:
    """Yield the events, again and again, each time later and with other numbers."""
    times, steps, others = ([n for n, k in zip(tile.numbers, tile.kinds, strict=True) if k == kind] for kind in _KINDS)
    # Marks of the profiler itself may be hours away from the events, so they do not count.
    span = sorted(times)[int(len(times) * 0.999)] - sorted(times)[int(len(times) * 0.001)] + _PAUSE_US
    stride = max(others) + 1
    strides = {b"ts": span * 11 // 10, b"step": len(set(steps)), b"number": stride}
    number = 0
    while True:
        shift = {kind: number * step + (moved if kind == b"ts" else 0) for kind, step in strides.items()}
        digits = (b"%d" % (value + shift[kind]) for value, kind in zip(tile.numbers, tile.kinds, strict=True))
        yield b"".join(part for pair in zip(tile.texts, digits, strict=False) for part in pair) + tile.texts[-1]
        number += 1


_KINDS: Final = (b"ts", b"step", b"number")


def make_tiles(traces: Path, folder: Path, megabytes: int, names: list[str]) -> dict[str, Path]:
    """Return the tile of each trace in each base, made unless an earlier run left it in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tiles = {}
    for name in names:
        for base in BASES:
            path = folder / f"{name}-{base}-{megabytes}mb.json"
            if not path.exists():
                copies = write_tile(next(traces.glob(TRACES[name])), path, base, megabytes)
                print(f"{path.name}: {copies} copies, {path.stat().st_size / 1e6:.0f} MB")
            tiles[f"{name}, {base}"] = path
    return tiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, help="folder with the traces of other projects")
    parser.add_argument("folder", type=Path, help="write the tiles here")
    parser.add_argument("--megabytes", type=int, default=150, help="size of each tile [default: 150]")
    parser.add_argument("--only", nargs="*", choices=TRACES, default=list(TRACES))
    options = parser.parse_args()
    make_tiles(options.traces, options.folder, options.megabytes, options.only)


if __name__ == "__main__":
    main()
