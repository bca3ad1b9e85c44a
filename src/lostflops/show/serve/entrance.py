"""Who may enter: the addresses at which a server answers, and the readers that it knows by their tokens.

A token is compared by its SHA-256 digest in constant time, with every reader's, so that the time of an answer shows
neither how much of a token was right nor whose it is.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from lostflops.core.errors import UsageError

OWNER: Final = "owner"
"""Reader whose token the server printed."""
FEWEST_LETTERS: Final = 32
"""Letters of a token: with fewer it could be guessed."""
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.@-]{0,63}", re.ASCII)
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+")
_HASHED: Final = re.compile(r"sha256:([0-9a-f]{64})")
_PATH: Final = re.compile(r"/([\w~-][\w.~-]*/)*", re.ASCII)
_USUAL_PORTS: Final = {"http": 80, "https": 443}
"""Browsers leave them out."""
_MOST_BYTES: Final = 1_000_000
_HOW: Final = "Each line is a name and a token: anna TOKEN, or anna sha256:HEX"


class Readers(Protocol):
    """Those who have a token."""

    def find_reader(self, token: str) -> str | None:
        """Return the name of the reader who has this token."""


class OneReader:
    """The owner, who has the token that was printed."""

    def __init__(self, token: str) -> None:
        self._readers = {OWNER: digest_token(token)}

    def find_reader(self, token: str) -> str | None:
        return match_token(token, self._readers)


class TokenFile:
    """Readers in a file, which is read again when it changes. If it cannot be read, there is no reader."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: tuple[int, ...] = ()
        self._readers: Mapping[str, bytes] = {}
        self._read()

    def find_reader(self, token: str) -> str | None:
        try:
            self._read()
        except UsageError as error:
            if self._readers:  # once, not for each request
                print(f"lostflops: no reader is let in: {error}", file=sys.stderr)
            self._state, self._readers = (), {}
        return match_token(token, self._readers)

    def _read(self) -> None:
        try:
            with self._path.open("rb") as stream:
                status = os.fstat(stream.fileno())
                state = status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
                if state == self._state:
                    return
                if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
                    raise UsageError(f"{self._path} can be read by others: chmod 600 {self._path}")
                text = stream.read(_MOST_BYTES).decode()
        except OSError as error:
            raise UsageError(f"{self._path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{self._path} is not a file of tokens. {_HOW}") from None
        self._readers, self._state = parse_readers(text, self._path), state


def parse_readers(text: str, file: Path) -> dict[str, bytes]:
    """Return the digest of each reader's token, by name."""
    readers: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split()
        if len(words) != 2 or not _NAME.fullmatch(words[0]):
            raise UsageError(f"line {number} of {file} is not a reader. {_HOW}")
        if words[0] in readers:
            raise UsageError(f"line {number} of {file} names {words[0]} again: give each reader one token")
        readers[words[0]] = _read_token(words[1], f"line {number} of {file}")
    if not readers:
        raise UsageError(f"{file} names no reader. {_HOW}")
    return readers


def _read_token(token: str, where: str) -> bytes:
    if hashed := _HASHED.fullmatch(token):
        return bytes.fromhex(hashed[1])
    if len(token) < FEWEST_LETTERS or not _TOKEN.fullmatch(token):
        raise UsageError(
            f"the token in {where} must have at least {FEWEST_LETTERS} letters, digits, - or _. "
            "Make one: openssl rand -hex 32"
        )
    return digest_token(token)


def digest_token(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def match_token(token: str, readers: Mapping[str, bytes]) -> str | None:
    """Return the reader of a token; every reader's is compared."""
    given = digest_token(token)
    found: str | None = None
    for name, digest in readers.items():
        if compare_digest(given, digest):
            found = name
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """At which addresses a server answers, and whom."""

    hosts: tuple[str, ...]
    """Values of the header Host."""
    readers: Readers
    scheme: str = "http"
    base: str = "/"
    """Where the paths of the page begin, with a slash at its end."""
    is_proxied: bool = False
    """A proxy states from where a request came."""

    @property
    def address(self) -> str:
        """Return the address of the page."""
        return f"{self.scheme}://{self.hosts[0]}{self.base}"

    def strip_base(self, path: str) -> str:
        """Return a path of the page; empty if the path is not below the base.

        >>> Entrance(hosts=("a",), readers=OneReader(""), base="/team/").strip_base("/team/app.js")
        '/app.js'
        """
        return path[len(self.base) - 1 :] if path.startswith(self.base) else ""


def local_entrance(port: int, readers: Readers) -> Entrance:
    """Return the entrance of a server that only this machine reaches."""
    names = ("127.0.0.1", "localhost")
    hosts = [f"{name}:{port}" for name in names] + [name for name in names if port == 80]  # which browsers leave out
    return Entrance(hosts=tuple(hosts), readers=readers)


def proxied_entrance(address: str, readers: Readers) -> Entrance:
    """Return the entrance of a server behind a proxy, which has this address.

    >>> proxied_entrance("https://a.example/team", OneReader("")).address
    'https://a.example/team/'
    """
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    is_plain = not (parts.username or parts.password or parts.query or parts.fragment)
    path = f"{parts.path.rstrip('/')}/"
    if parts.scheme not in {"http", "https"} or not parts.hostname or not is_plain or not _PATH.fullmatch(path):
        raise UsageError(f"--behind {address} is not the address of a page: write https://lostflops.example.org/team/")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    host = name if port in (None, _USUAL_PORTS[parts.scheme]) else f"{name}:{port}"
    return Entrance(hosts=(host,), readers=readers, scheme=parts.scheme, base=path, is_proxied=True)
