"""Which kind of fleet a PLACE is: decided by its form and by the names in its folder, without reading any run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lostflops.core.errors import RunError, UsageError
from lostflops.store.manifest import FILE_NAME as RUN_FILE
from lostflops.store.objects import objects_of
from lostflops.store.places import Address, Place, remote

CATALOG_FILE: Final = "catalog.db"
"""A local folder with this file is a fleet that was made by adding runs."""
_CATALOG: Final = "catalog:"
_UNUSABLE: Final = "?#"
"""Characters that end the path of a URL; Iceberg stores the path of each file as a URL."""


@dataclass(frozen=True, slots=True)
class LocalTable:
    """A folder with a table and its catalog."""

    folder: Path

    def __str__(self) -> str:
        return str(self.folder)


@dataclass(frozen=True, slots=True)
class BucketTable:
    """An address in an object store that holds a table and needs no catalog."""

    address: Address

    def __str__(self) -> str:
        return str(self.address)


@dataclass(frozen=True, slots=True)
class NamedCatalog:
    """A catalog that the configuration of pyiceberg describes under this name."""

    name: str

    def __str__(self) -> str:
        return f"{_CATALOG}{self.name}"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder that contains runs, and no table."""

    folder: Path
    runs: tuple[Path, ...]

    def __str__(self) -> str:
        return str(self.folder)


TableKind = LocalTable | BucketTable | NamedCatalog


def find_kind(place: str | Place) -> TableKind | RunFolder:
    """Return what to read; raise if the place is neither a table nor a folder of runs."""
    if (kind := _find_distant(place)) is not None:
        return kind
    folder = Path(str(place)).resolve()
    if (folder / CATALOG_FILE).exists():
        return LocalTable(folder)
    if (folder / RUN_FILE).exists():
        raise UsageError(
            f"{folder} is one run, not a fleet. Name the folder that contains its runs, or add the run to a fleet: "
            f"lostflops fleet add PLACE {shlex.quote(str(folder))}"
        )
    if runs := list_runs(folder):
        return RunFolder(folder, runs)
    problem = "has no runs" if folder.is_dir() else "is not a folder"
    raise UsageError(
        f"{folder} {problem}, so it is not a fleet. Name a folder that contains runs, or make a fleet of some: "
        f"lostflops fleet add {shlex.quote(str(folder))} RUN..."
    )


def is_fleet(place: str | Place) -> bool:
    """Return whether a place is a fleet; if not, it may be a run. In an object store this reads what is there."""
    kind = _find_distant(place)
    if isinstance(kind, BucketTable):
        return "metadata" in objects_of(kind.address).names(kind.address)
    if kind is not None:
        return True
    folder = Path(str(place))
    return (folder / CATALOG_FILE).exists() or (not (folder / RUN_FILE).exists() and bool(list_runs(folder)))


def find_target(place: str | Place) -> TableKind:
    """Return where to add runs: a table, or a folder that is empty or new."""
    if (kind := _find_distant(place)) is not None:
        return kind
    folder = Path(str(place)).resolve()
    if bad := next((letter for letter in _UNUSABLE if letter in str(folder)), None):
        raise UsageError(f"a fleet cannot be in {folder}, because its path contains {bad!r}. Choose another folder.")
    names = _list_names(folder)
    if CATALOG_FILE in names or not names:
        return LocalTable(folder)
    if RUN_FILE in names or list_runs(folder):
        raise RunError(
            f"{folder} contains runs, which need not be added: questions to this folder read them as they are. "
            "To make a table of runs, choose an empty or new folder."
        )
    raise RunError(f"{folder} is not a fleet and has other files ({min(names)!r}). Choose an empty or new folder.")


def list_runs(folder: Path) -> tuple[Path, ...]:
    """Return the folders of the runs in a folder, one or two levels deep."""
    found = [*folder.glob(f"*/{RUN_FILE}"), *folder.glob(f"*/*/{RUN_FILE}")]
    return tuple(sorted(file.parent for file in found))


def _find_distant(place: str | Place) -> BucketTable | NamedCatalog | None:
    text = str(place)
    if text.startswith(_CATALOG):
        name = text.removeprefix(_CATALOG)
        if not name.replace("-", "").replace("_", "").isalnum():
            raise UsageError(f"{text!r} is not of the form {_CATALOG}NAME, where .pyiceberg.yaml describes NAME")
        return NamedCatalog(name)
    return BucketTable(address) if (address := remote(place)) is not None else None


def _list_names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise RunError(f"{folder} cannot be used: {error.strerror}. Choose another folder.") from None
