"""What a store does wrong is tried again, some times, and then named: over HTTP, as it happens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from lostflops.store.objects import Listed, objects_of
from lostflops.store.places import Address

if TYPE_CHECKING:
    from made_store import ObjectStore

TRACE = b"0123456789" * 20_000


class Front(ThreadingHTTPServer):
    """In front of the store: does what `failures` says with the next downloads, and passes on all others."""

    def __init__(self, endpoint: str, failures: list[str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.endpoint, self.failures = endpoint, failures


class Handler(BaseHTTPRequestHandler):
    server: Front

    def do_HEAD(self) -> None:
        self._pass_on()

    def do_GET(self) -> None:
        how = self.server.failures.pop() if self.server.failures else ""
        if how == "busy":
            self.send_error(503)
        elif how == "cut":
            self.send_response(200)
            self.send_header("Content-Length", str(len(TRACE)))
            self.end_headers()
            self.wfile.write(TRACE[: len(TRACE) // 2])
            self.close_connection = True
        elif how == "hung up":
            self.close_connection = True
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        try:
            with urlopen(Request(self.server.endpoint + self.path, headers=headers, method=self.command)) as answer:
                status, told, body = answer.status, answer.headers, answer.read()
        except HTTPError as error:
            with error:
                status, told, body = error.code, error.headers, error.read()
        self.send_response(status)
        for name, value in told.items():
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def failing(endpoint: str, failures: list[str]) -> Iterator[str]:
    server = Front(endpoint, failures)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("how", ["busy", "cut", "hung up"])
def test_a_store_that_fails_twice_is_tried_again(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    address = Address(object_store.put("trace.json", TRACE))
    failures = [how, how]
    with failing(object_store.endpoint, failures) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        objects_of(address).fetch(address, tmp_path / "trace.json")
    assert failures == []
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["trace.json"]
    assert (tmp_path / "trace.json").read_bytes() == TRACE


def test_what_is_not_there_is_not_tried_again(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = Address(object_store / "nothing.json")
    monkeypatch.setattr("lostflops.store.objects.time.sleep", lambda _: pytest.fail("waited"))
    with pytest.raises(FileNotFoundError) as caught:
        objects_of(address).fetch(address, tmp_path / "folder" / "nothing.json")
    assert caught.value.filename == address.url
    assert "does not exist" in str(caught.value)
    assert list((tmp_path / "folder").iterdir()) == []
    assert objects_of(address).one(address) is None


def test_listings_go_by_folders_and_patterns(object_store: ObjectStore) -> None:
    for name in ("traces/a.json", "traces/deep/b.json", "traces-2/c.json", "traces/folder/"):
        object_store.put(name, name.encode())
    objects = objects_of(Address(object_store / "traces"))

    def names(listed: list[Listed]) -> list[str]:
        return sorted(one.address.url.removeprefix(object_store / "") for one in listed)

    assert names(objects.below(Address(object_store / "traces"))) == ["traces/a.json", "traces/deep/b.json"]
    matched, folders = objects.matching(Address(object_store / "*/*.json"))
    assert (names(matched), folders) == (["traces-2/c.json", "traces/a.json"], [])
    matched, folders = objects.matching(Address(object_store / "traces/*"))
    assert names(matched) == ["traces/a.json"]
    assert Address(object_store / "traces/deep") in folders
    one = objects.one(Address(object_store / "traces/a.json"))
    assert one is not None
    assert (one.size, len(one.etag), one.modified_ns > 10**18) == (13, 32, True)
    assert objects.one(Address(object_store / "traces")) is None
