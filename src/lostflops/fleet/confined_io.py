"""Files of a table that may come from anybody: only those in its place are opened, whatever the table names.

Import this module only where pyiceberg is installed.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from lostflops.fleet.locations import is_inside


class FolderIO(PyArrowFileIO):  # type: ignore[misc] # pyiceberg is an extra
    """Files of a local folder, which is the property `warehouse` of the catalog."""

    def new_input(self, location: str) -> Any:
        return super().new_input(_confine(self, location))

    def new_output(self, location: str) -> Any:
        return super().new_output(_confine(self, location))

    def delete(self, location: Any) -> None:
        super().delete(_confine(self, location))


class BucketIO(FsspecFileIO):  # type: ignore[misc] # pyiceberg is an extra
    """Objects below an address, which is the property `warehouse`."""

    def open_parts(self, location: str) -> Any:
        """Open an object of which little is needed: each read is a request, and nothing is read ahead."""
        place = _confine(self, location)
        return self.get_fs(urlsplit(place).scheme).open(place, cache_type="none")

    def new_input(self, location: str) -> Any:
        return super().new_input(_confine(self, location))

    def new_output(self, location: str) -> Any:
        return super().new_output(_confine(self, location))

    def delete(self, location: Any) -> None:
        super().delete(_confine(self, location))


def _confine(files: Any, location: Any) -> str:
    name = str(getattr(location, "location", location))
    if not is_inside(name, files.properties["warehouse"]):
        raise ValueError(f"the table names {name}, which is not in its place")
    return name
