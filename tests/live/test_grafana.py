"""The dashboard in examples/grafana asks for metrics that `lostflops watch --prometheus` writes."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lostflops.live.metrics import METRICS
from lostflops.live.prometheus import text as exposed

DASHBOARD = json.loads((Path(__file__).parent.parent.parent / "examples/grafana/lostflops.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
LABELS = ((("host", "a"), ("rank", "0")), (("host", "a"), ("rank", "1")))


def names(query: str) -> set[str]:
    return set(re.findall(r"lostflops_\w+", query))


def test_every_metric_is_on_the_dashboard_and_no_other() -> None:
    asked = {name for query in QUERIES for name in names(query)}
    assert asked == {metric.name for metric in METRICS}


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@contextmanager
def served(text: str) -> Iterator[int]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@contextmanager
def prometheus(target: int, folder: Path) -> Iterator[str]:
    """A real Prometheus that scrapes this port of loopback every second."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: l, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
    )
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
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


def ask(address: str, query: str) -> list[Any]:
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)["data"]["result"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus: apt-get install prometheus")
def test_a_real_prometheus_answers_every_query(tmp_path: Path) -> None:
    text = exposed({metric: [(labels, 1.0) for labels in LABELS] for metric in METRICS})
    with served(text) as port, prometheus(port, tmp_path) as address:
        deadline = time.monotonic() + 30
        while True:
            try:
                if ask(address, "lostflops_ranks"):
                    break
            except OSError:
                pass
            assert time.monotonic() < deadline, "prometheus scraped nothing within 30 s"
            time.sleep(0.5)
        for query in QUERIES:
            assert ask(address, query.replace("$instance", ".*")), query
