"""Files of a local table for readers, without pyarrow. Import this module only where pyiceberg is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO, InputFile

from lostflops.fleet.locations import is_inside, local_path


class LocalInput(InputFile):  # type: ignore[misc] # pyiceberg is an extra
    """One file to read."""

    def __init__(self, location: str, path: Path) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        return self._path.exists()

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002 - each file can be read at any place
        return self._path.open("rb")


class LocalIO(FileIO):  # type: ignore[misc] # pyiceberg is an extra
    """Files in a folder; others are refused."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def new_input(self, location: str) -> LocalInput:
        path = local_path(location)
        if path is None or not is_inside(location, f"file://{self._folder}"):
            raise ValueError(f"the table names {location}, which is not in its place")
        return LocalInput(location, path)

    def new_output(self, location: str) -> Any:
        raise NotImplementedError

    def delete(self, location: Any) -> None:
        raise NotImplementedError
