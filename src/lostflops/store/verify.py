"""Does every file of a run still have the bytes that were written?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from lostflops.core.results import Field, Figure, Pair, Pairs, Result, Table
from lostflops.core.units import pluralise
from lostflops.core.utf8 import utf8
from lostflops.store import manifest as manifests
from lostflops.store.checksums import describe_rest, find_damage, read_files
from lostflops.store.manifest import DataFile, Manifest
from lostflops.store.mirror import newest
from lostflops.store.objects import objects_of
from lostflops.store.places import Address, Place, remote

Progress = Callable[[int, int], None]
Checked = tuple[str, DataFile, str]
"""Table, file, and what is wrong with it."""


def verify(run: str | Place, progress: Progress | None = None) -> Result:
    """Read all files of a run, in a folder or an object store, and compare them with their checksums."""
    address = remote(run)
    if address is not None:
        _, manifest = newest(address, objects_of(address))
        found = _check_objects(address, manifest)
    else:
        folder = utf8(Path(str(run)).resolve())
        manifest = manifests.load(folder)
        found = read_files(folder, manifest)
    total = sum(map(len, manifest.files.values()))
    checked: list[Checked] = []
    for one in found:
        checked.append(one)
        if progress is not None:
            progress(len(checked), total)
    return _tell(str(run), manifest, checked)


def _check_objects(run: Address, manifest: Manifest) -> Iterator[Checked]:
    """Fetch every object again: a copy on this machine says nothing about the store."""
    objects = objects_of(run)
    with tempfile.TemporaryDirectory(prefix="lostflops-verify-") as folder:
        for table, files in manifest.files.items():
            for file in files:
                path = Path(folder) / "object.parquet"
                path.unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    objects.fetch(run / file.path, path)
                yield table, file, find_damage(path, file)


def _tell(run: str, manifest: Manifest, checked: list[Checked]) -> Result:
    damaged = [one for one in checked if one[2]]
    unknown = sum(file.crc32 < 0 for _, file, _ in checked)
    size = sum(file.bytes for _, file, _ in checked)
    verdict = f"All {pluralise(len(checked), 'table file')} are intact."
    if unknown:
        verdict = (
            f"Unknown for {unknown:,} of {pluralise(len(checked), 'table file')}: an older version wrote them, without "
            "checksums. Only their sizes were compared."
        )
    if damaged:
        verb = "is" if len(damaged) == 1 else "are"
        verdict = f"{pluralise(len(damaged), 'file')} {verb} damaged; {describe_rest(manifest, damaged)}"
    rows = tuple((table, file.path, len(file.ranks), damage) for table, file, damage in damaged)
    fields = Field("table"), Field("file"), Field("ranks", "count"), Field("damage")
    held = Pairs(
        "files", "Checked", (Pair("count", len(checked), "count", "table files"), Pair("bytes", size, "bytes", "size"))
    )
    again = (f"Ingest the traces of {run} again, into a new folder.",) if damaged else ()
    notes = (*again, "capture/ and predictions/ of a run are not checked.")
    blocks = (Table("damaged", "Damaged files", fields, rows), held) if damaged else (held,)
    more = () if damaged else (Table("damaged", "", fields, ()),)
    more_figures = Figure("is_intact", not damaged), Figure("without_checksum", unknown)
    return Result("verify", "Is the run as it was written?", verdict, blocks, notes, more=(*more, *more_figures))
