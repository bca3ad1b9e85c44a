"""An object store on loopback that speaks S3, and buckets of it; nothing leaves the machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
from moto.server import ThreadedMotoServer

_numbers = count()


@dataclass(frozen=True)
class ObjectStore:
    """A bucket of its own, empty at first."""

    endpoint: str
    bucket: str
    filesystem: Any

    def __truediv__(self, name: str) -> str:
        return f"s3://{self.bucket}/{name}"

    def put(self, name: str, data: bytes | Path) -> str:
        whole = data.read_bytes() if isinstance(data, Path) else data
        self.filesystem.pipe_file(f"{self.bucket}/{name}", whole)
        return self / name

    def put_all(self, files: list[Path], folder: str = "traces") -> str:
        for file in files:
            self.put(f"{folder}/{file.name}", file)
        return self / folder

    def keys(self, folder: str = "") -> list[str]:
        found = self.filesystem.find(f"{self.bucket}/{folder}")
        return sorted(name.removeprefix(f"{self.bucket}/") for name in found)

    def read(self, name: str) -> bytes:
        return bytes(self.filesystem.cat_file(f"{self.bucket}/{name}"))

    def remove(self, name: str) -> None:
        self.filesystem.rm_file(f"{self.bucket}/{name}")


@contextmanager
def serving() -> Iterator[str]:
    """The endpoint of a server that ends with this."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()


@lru_cache
def _filesystem(endpoint: str) -> Any:
    return fsspec.filesystem("s3", endpoint_url=endpoint, use_listings_cache=False, skip_instance_cache=True)


def bucket_of(endpoint: str, name: str | None = None) -> ObjectStore:
    """With the environment that tells the keys set already."""
    filesystem = _filesystem(endpoint)
    name = name or f"bucket-{next(_numbers)}"
    filesystem.mkdir(name)
    return ObjectStore(endpoint, name, filesystem)
