"""A table in an object store without a catalog: version N is an object `metadata/vN.metadata.json`, created only once.

Two writers that began from version N both try to create N + 1; the store lets one of them. So the newest version is
the table, as in the file system tables of Iceberg's specification, and other engines find it by its name.
Import this module only where pyiceberg is installed.
"""

from __future__ import annotations

import re
import time
from io import BytesIO
from typing import Any, Final

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.serializers import FromByteStream
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

from lostflops.core.errors import RunError
from lostflops.fleet.confined_io import BucketIO
from lostflops.store.objects import objects_of
from lostflops.store.places import Address

_VERSION: Final = re.compile(r"v(\d{1,18})\.metadata\.json")
_MOST_SECONDS: Final = 1800.0
"""A commit that takes longer is refused: the version that it would create may have been removed meanwhile."""
_PROBE: Final = "probe"


class BucketCatalog(NoopCatalog):  # type: ignore[misc] # pyiceberg is an extra
    """The catalog of one table, whose place is `address`."""

    def __init__(self, address: Address) -> None:
        super().__init__(str(address))
        self._metadata = address / "metadata"
        self._address = address
        self._objects = objects_of(address)
        self._loaded = time.monotonic()

    def load_table(self, identifier: Any) -> Table:
        self._loaded = time.monotonic()
        for _ in range(3):  # the newest may be replaced and removed between the two requests
            newest = self._find_newest()
            if not newest:
                raise NoSuchTableError(str(self._address))
            try:
                return self._read_version(identifier, newest)
            except FileNotFoundError:
                continue
        raise FileNotFoundError(f"{self._metadata} changes too quickly to be read")

    def create_namespace_if_not_exists(self, namespace: Any, properties: Any = None) -> None:
        """Do nothing: the table is alone in its place."""

    def create_table(self, identifier: Any, schema: Any, *_: Any, **more: Any) -> Table:
        """Make the first version; the place of the files is ours to choose."""
        self._refuse_without_conditions()
        metadata = new_table_metadata(
            schema=assign_fresh_schema_ids(self._convert_schema_if_needed(schema)),
            partition_spec=UNPARTITIONED_PARTITION_SPEC,
            sort_order=UNSORTED_SORT_ORDER,
            location=str(self._address),
            # Removing a version at once would let a slow writer create it a second time.
            properties={**more.get("properties", {}), "write.metadata.delete-after-commit.enabled": "false"},
        )
        if not self._objects.create(_encode(metadata), self._address_of(1)):
            raise TableAlreadyExistsError(str(self._address))
        return self.load_table(identifier)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        current = self.load_table(table.name())
        for requirement in requirements:
            requirement.validate(current.metadata)
        metadata = update_table_metadata(current.metadata, updates, metadata_location=current.metadata_location)
        version = _version_of(Address(current.metadata_location).name) + 1
        if time.monotonic() - self._loaded > _MOST_SECONDS:
            raise CommitFailedException(f"version {version} took too long to write")
        target = self._address_of(version)
        if not self._objects.create(_encode(metadata), target):
            raise CommitFailedException(f"another writer created version {version}")
        return CommitTableResponse(metadata=metadata, metadata_location=str(target))

    def _find_newest(self) -> int:
        return max((_version_of(name) for name in self._objects.names(self._metadata)), default=0)

    def _read_version(self, identifier: Any, version: int) -> Table:
        address = self._address_of(version)
        metadata = FromByteStream.table_metadata(BytesIO(self._objects.read(address)))
        return Table(identifier, metadata, str(address), BucketIO({"warehouse": str(self._address)}), self)

    def _address_of(self, version: int) -> Address:
        return self._metadata / f"v{version}.metadata.json"

    def _refuse_without_conditions(self) -> None:
        """Raise if the store overwrites an object on create: two writers would both believe that they committed."""
        probe = self._metadata / _PROBE
        self._objects.create(b"1", probe)
        if self._objects.create(b"2", probe):
            raise RunError(
                f"the store of {self._address} does not support If-None-Match, so two writers could overwrite each "
                "other's runs. Use a catalog (catalog:NAME) or a local folder."
            )


def _version_of(name: str) -> int:
    """Return the version in the name of an object, or 0 if it is not a version."""
    match = _VERSION.fullmatch(name)
    return int(match[1]) if match else 0


def _encode(metadata: Any) -> bytes:
    return bytes(metadata.model_dump_json(exclude_none=True).encode())
