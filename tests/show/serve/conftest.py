"""A small run with a known cluster, and its server without a network."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from lostflops.show.serve.app import App  # noqa: E402
from lostflops.show.serve.audit import AuditLog  # noqa: E402
from lostflops.show.serve.entrance import Entrance, OneReader, local_entrance  # noqa: E402
from lostflops.show.serve.live import LivePage  # noqa: E402
from lostflops.show.serve.sites import RunSite, Site  # noqa: E402
from lostflops.testing import SyntheticCluster, store  # noqa: E402

PORT, TOKEN = 8765, "right-token"
HOST = f"127.0.0.1:{PORT}"
ENTRANCE = local_entrance(PORT, OneReader(TOKEN))
GOOD = {"Host": HOST, "Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    generated = SyntheticCluster(ranks=2, steps=3, first_step=0).generate()
    return store(generated, folder)


@dataclass(frozen=True)
class SiteServer:
    """Asks the app as a browser would, without a network."""

    site: Site
    entrance: Entrance = ENTRANCE
    audit: AuditLog | None = None

    def ask(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        return self.together(lambda client: client.request(method, path, headers=headers or GOOD, **more))

    def together(self, asked: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
        import asyncio

        async def all_of_it() -> Any:
            transport = httpx.ASGITransport(App(self.site, self.entrance, self.audit))
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                return await asked(client)

        return asyncio.run(all_of_it())


@dataclass(frozen=True)
class Server(SiteServer):
    """Asks the page of one run."""

    def __init__(self, live: LivePage) -> None:
        object.__setattr__(self, "live", live)
        super().__init__(RunSite(live))

    def sql(self, query: str) -> httpx.Response:
        return self.ask("POST", "/api/sql", json={"query": query})


@pytest.fixture(scope="module")
def server(run_folder: Path) -> Iterator[Server]:
    live = LivePage(run_folder)
    yield Server(live)
    assert live.close()


def unpacked(response: httpx.Response) -> Any:
    """The JSON of an answer that is packed as in a file."""
    import zlib
    from base64 import b64decode

    assert response.status_code == 200, response.text
    return json.loads(zlib.decompress(b64decode(response.json()[0])))
