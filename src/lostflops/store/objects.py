"""Objects of a store, through fsspec: listed, fetched, sent, and created only if absent.

Endpoint, keys and region come from where botocore takes them (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, profiles, roles).
Failures raise an `OSError` with the address as its file name, after some retries if these may help.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from lostflops.core.errors import UsageError
from lostflops.store.places import Address

T = TypeVar("T")
_MISSING: Final = "object stores need s3fs, which is not installed: pip install 'lostflops[s3]'"
WAITS: Final = (0.5, 2.0)
"""Seconds before each further try; the libraries below also retry."""
_AT_ONCE: Final = 8
_PER_REMOVAL: Final = 1000
_ENVIRONMENT: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_ACCESS_KEY_ID")


@dataclass(frozen=True, slots=True)
class Listed:
    """An object as it was when it was listed."""

    address: Address
    size: int
    etag: str
    modified_ns: int


class Objects:
    """The store that an address is in."""

    def __init__(self, filesystem: Any, refusals: tuple[type[Exception], ...], faults: tuple[type[Exception], ...]):
        self._filesystem = filesystem
        self._refusals = refusals
        self._faults = faults

    @property
    def endpoint(self) -> str:
        """Address of the store: two stores may have buckets of the same name."""
        self._call_with_retries(self._filesystem.connect, Address("s3://"))
        return str(self._filesystem.s3.meta.endpoint_url)

    def below(self, folder: Address) -> list[Listed]:
        """Return all objects with a name that begins with the address and a slash."""
        found = self._call_with_retries(lambda: self._filesystem.find(f"{_key(folder)}/", detail=True), folder)
        return list(_list_objects(found, f"{_key(folder)}/"))

    def names(self, folder: Address) -> list[str]:
        """Return names of objects and folders directly below."""
        with suppress(FileNotFoundError):
            found = self._call_with_retries(
                lambda: self._filesystem.ls(_key(folder), detail=False, refresh=True), folder
            )
            return [str(name).removeprefix(f"{_key(folder)}/") for name in found if name != _key(folder)]
        return []

    def matching(self, pattern: Address) -> tuple[list[Listed], list[Address]]:
        """Return the objects and the folders that match."""
        found = self._call_with_retries(lambda: self._filesystem.glob(_key(pattern), detail=True), pattern)
        folders = [name.rstrip("/") for name, told in found.items() if told["type"] == "directory"]
        return list(_list_objects(found, "")), [Address(f"s3://{name}") for name in folders]

    def one(self, address: Address) -> Listed | None:
        """Return the object of exactly this name, or None."""
        with suppress(FileNotFoundError):
            found = self._call_with_retries(lambda: self._filesystem.info(_key(address), refresh=True), address)
            return next(_list_objects({_key(address): found}, ""), None)
        return None

    def read(self, address: Address) -> bytes:
        return bytes(self._call_with_retries(lambda: self._filesystem.cat_file(_key(address)), address))

    def fetch(self, address: Address, path: Path) -> None:
        """Fetch the object into a file that appears only when it is complete."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{secrets.token_hex(8)}.part")
        try:
            self._call_with_retries(lambda: self._filesystem.get_file(_key(address), str(partial)), address)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def send(self, path: Path, address: Address) -> None:
        self._call_with_retries(lambda: self._filesystem.put_file(str(path), _key(address)), address)

    def write(self, data: bytes, address: Address) -> None:
        self._call_with_retries(lambda: self._filesystem.pipe_file(_key(address), data), address)

    def create(self, data: bytes, address: Address) -> bool:
        """Create the object; return whether it is ours now.

        That is so if there was none, or if an earlier try created it and its answer was lost.
        """
        try:
            self._call_with_retries(lambda: self._filesystem.pipe_file(_key(address), data, mode="create"), address)
        except FileExistsError:
            return self.read(address) == data
        return True

    def remove(self, addresses: Sequence[Address]) -> None:
        for first in range(0, len(addresses), _PER_REMOVAL):
            some = [_key(address) for address in addresses[first : first + _PER_REMOVAL]]
            with suppress(FileNotFoundError):
                self._call_with_retries(lambda some=some: self._filesystem.rm(some), addresses[first])  # type: ignore[misc]

    def _call_with_retries(self, do: Callable[[], T], about: Address) -> T:
        for wait in (*WAITS, None):
            try:
                return do()
            except FileNotFoundError as error:
                said = _words(error)
                is_name = _key(about).startswith(said)
                raise FileNotFoundError(errno.ENOENT, "no such object" if is_name else said, about.url) from None
            except FileExistsError as error:
                raise FileExistsError(errno.EEXIST, _words(error), about.url) from None
            except PermissionError as error:
                raise PermissionError(errno.EACCES, _words(error), about.url) from None
            except self._refusals as error:
                raise PermissionError(errno.EACCES, _words(error), about.url) from None
            except self._faults as error:
                if _is_taken(error):
                    raise FileExistsError(errno.EEXIST, _words(error), about.url) from None
                if wait is None:
                    raise OSError(errno.EIO, _words(error), about.url) from None
                time.sleep(wait)
        raise AssertionError


def in_parallel(do: Callable[[T], object], items: Iterable[T]) -> None:
    """Process some items at once; raise the first error after those in progress have ended."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(do, item) for item in items]:
            try:
                done.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def objects_of(address: Address) -> Objects:
    scheme = address.url.partition(":")[0]
    return _objects(scheme, os.getpid(), tuple(os.environ.get(name) for name in _ENVIRONMENT))


@lru_cache(maxsize=4)
def _objects(scheme: str, _process: int, _environment: tuple[str | None, ...]) -> Objects:
    try:
        import fsspec  # noqa: PLC0415 - an extra, and slow to import
        from aiohttp import ClientError as TransportError  # noqa: PLC0415
        from botocore import exceptions as said  # noqa: PLC0415

        filesystem = fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True)
    except ImportError:
        raise UsageError(_MISSING) from None
    refusals = (said.NoCredentialsError, said.PartialCredentialsError, said.ProfileNotFound, said.ParamValidationError)
    return Objects(filesystem, refusals, (OSError, said.BotoCoreError, said.ClientError, TransportError))


def _key(address: Address) -> str:
    return address.url.partition("://")[2]


def _list_objects(found: Mapping[str, Mapping[str, Any]], prefix: str) -> Iterator[Listed]:
    for name, told in found.items():
        # A name that ends with a slash marks a folder for tools that show some.
        if told["type"] != "file" or name.endswith("/") or not name.startswith(prefix):
            continue
        modified = told.get("LastModified")
        when = round(modified.timestamp() * 1e9) if isinstance(modified, datetime) else 0
        yield Listed(Address(f"s3://{name}"), int(told["size"]), str(told.get("ETag", "")).strip('"'), when)


def _is_taken(error: Exception) -> bool:
    """Return whether a condition did not hold; few stores say which, and s3fs takes it for an error of another kind."""
    response = getattr(error if hasattr(error, "response") else error.__cause__, "response", None)
    return isinstance(response, dict) and response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412


def _words(error: Exception) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (said.strip().splitlines() or [type(error).__name__])[0]
