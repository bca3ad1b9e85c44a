"""The live page hands its run to the Perfetto UI: a page that plays the documented part of that UI gets the trace."""

from __future__ import annotations

import base64
import gzip
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lostflops.testing import SyntheticCluster, store
from tests.show.export.decoded import decode

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("starlette", reason="the extra serve is not installed")

SOURCES = str(Path(__file__).parents[2] / "src")
PERFETTO = """<script>
addEventListener("message", (event) => {
  if (event.source !== window.opener) return;
  if (event.data === "PING") return event.source.postMessage("PONG", "*");
  const { buffer, title } = event.data.perfetto;
  window.got = [title, btoa(new Uint8Array(buffer).reduce((text, byte) => text + String.fromCharCode(byte), ""))];
});
</script>"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    run = store(SyntheticCluster(ranks=2, steps=2).generate(), tmp_path / "gpt")
    script = f"import sys; sys.path.insert(0, {SOURCES!r}); from lostflops.cli.main import main; main()"
    words = [sys.executable, "-u", "-c", script, "serve", str(run), "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        try:
            yield next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
        finally:
            server.terminate()


@pytest.mark.slow
def test_a_click_gives_the_trace_to_the_other_tab(browser: Browser, address: str) -> None:
    context = browser.new_context()
    asked: list[str] = []

    def play(route) -> None:
        asked.append(route.request.method)
        route.fulfill(body=PERFETTO, content_type="text/html")

    context.route("https://ui.perfetto.dev/**", play)
    page = context.new_page()
    page.goto(address)
    button = page.get_by_role("button", name="Open in the Perfetto UI")
    button.wait_for(timeout=60_000)
    assert "the trace stays in your browser" in page.inner_text("#perfetto")
    assert asked == []
    with context.expect_page() as other:
        button.click()
    other.value.wait_for_function("() => window.got", timeout=60_000)
    title, data = other.value.evaluate("window.got")
    trace = decode(gzip.decompress(base64.b64decode(data)))
    assert title == "gpt"
    assert {each.process.split(" · ")[0] for each in trace.slices} == {"rank 0", "rank 1"}
    # The site is opened, and nothing is sent to it over a network.
    assert set(asked) == {"GET"}
    context.close()
