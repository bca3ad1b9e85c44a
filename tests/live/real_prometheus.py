"""A real Prometheus that scrapes pages of this process, and its answers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="needs prometheus and promtool: apt-get install prometheus",
)


@contextmanager
def served(pages: Mapping[str, Callable[[], str]]) -> Iterator[int]:
    """Serve each page at its path, as the node exporter serves text files; yield the port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = pages[self.path]().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@contextmanager
def prometheus(config: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Run Prometheus with this configuration until the block ends; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config))  # JSON is YAML
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder}/data"]
    process = subprocess.Popen(
        [*command, f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GOMAXPROCS": "1"},
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def ask(address: str, path: str, **parameters: str) -> Any:
    url = f"{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)["data"]


def wait_for(question: Callable[[], Any], seconds: float, what: str) -> Any:
    """Return the answer once it is neither empty nor an error."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if answer := question():
                return answer
        except OSError:
            pass
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)
