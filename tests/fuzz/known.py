"""Inputs that are tried by every test run: seeds, a small corpus, and every input that once found a defect."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.fuzz.targets import TARGETS

_HERE: Final = Path(__file__).resolve().parent
CORPUS: Final = _HERE / "corpus"
FOUND: Final = _HERE / "found"


def known_inputs(name: str) -> Iterator[bytes]:
    yield from TARGETS[name].seeds()
    yield from (path.read_bytes() for path in found_inputs(name))
    if (packed := CORPUS / f"{name}.zip").exists():
        with zipfile.ZipFile(packed) as archive:
            yield from (archive.read(member) for member in archive.namelist())


def found_inputs(name: str) -> list[Path]:
    """Return the inputs that once found a defect: `TARGET-what-was-wrong`."""
    return sorted(path for path in FOUND.glob(f"{name}-*") if path.name.partition("-")[0] == name)
