"""The server: on this machine only, until it is interrupted."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path

import uvicorn

from lostflops.core.errors import UsageError
from lostflops.show.serve.app import App
from lostflops.show.serve.audit import AuditLog
from lostflops.show.serve.connections import LimitedConnection
from lostflops.show.serve.entrance import OneReader, Readers, TokenFile, local_entrance, proxied_entrance
from lostflops.show.serve.fleet_page import FleetPage
from lostflops.show.serve.fleet_routes import FleetSite
from lostflops.show.serve.limits import ServeLimits
from lostflops.show.serve.live import LivePage
from lostflops.show.serve.sites import RunSite, Site
from lostflops.store.memory_limit import limit_memory
from lostflops.store.places import Place

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeAccess:
    """Who may read a page, and how that is noted."""

    behind: str = ""
    """Address of the page if a proxy is in front of the server."""
    token_file: Path | None = None
    """Readers with their tokens; without it, one token is made and printed."""
    audit: Path | None = None
    """File in which each request is noted."""


def serve(
    path: Path,
    port: int,
    tell: Callable[[str], None],
    *,
    browser: bool,
    other: Path | None = None,
    limits: ServeLimits | None = None,
    access: ServeAccess | None = None,
) -> None:
    """Serve a run until Ctrl-C or SIGTERM.

    `tell` is called once, with the address and its token; `other` is a run to compare with.
    """
    limits = limits or ServeLimits.within(limit_memory())
    serve_site(
        lambda: RunSite(LivePage(path, other, limits)), port, tell, browser=browser, limits=limits, access=access
    )


def serve_fleet(
    place: str | Place,
    folders: Sequence[Path],
    port: int,
    tell: Callable[[str], None],
    *,
    browser: bool,
    access: ServeAccess | None = None,
) -> None:
    """Serve a fleet until Ctrl-C or SIGTERM; `folders` are those in which its runs may be opened."""
    limits = ServeLimits.within(limit_memory())
    serve_site(
        lambda: FleetSite(FleetPage(place, folders, limits)), port, tell, browser=browser, limits=limits, access=access
    )


def serve_site(
    open_site: Callable[[], Site],
    port: int,
    tell: Callable[[str], None],
    *,
    browser: bool,
    limits: ServeLimits,
    access: ServeAccess | None = None,
) -> None:
    """Serve a site until Ctrl-C or SIGTERM."""
    access = access or ServeAccess()
    token = "" if access.token_file else secrets.token_urlsafe(32)
    readers: Readers = TokenFile(access.token_file) if access.token_file else OneReader(token)
    audit = AuditLog(access.audit) if access.audit else None
    proxied = proxied_entrance(access.behind, readers) if access.behind else None
    with _listening(port) as listener:
        site = open_site()
        entrance = proxied or local_entrance(listener.getsockname()[1], readers)
        address = entrance.address + (f"#token={token}" if token else "")
        tell(address)
        with _browser(address, wanted=browser and bool(token) and proxied is None):
            _run(App(site, entrance, audit), listener, limits)
    if not site.close():
        # Python of a question cannot be interrupted, and nobody waits for its answer.
        sys.stdout.flush()
        os._exit(0)


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    # With its protocol named, asyncio sets TCP_NODELAY: without that, each answer waits 40 ms for an acknowledgement.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()  # whoever reads the address may come before the server is ready, and waits
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used ({error.strerror}). Choose another --port, or omit it to use a free one"
            ) from None
        yield listener


def _run(app: App, listener: socket.socket, limits: ServeLimits) -> None:
    config = uvicorn.Config(
        app,
        http=partial(LimitedConnection, limits),
        timeout_keep_alive=limits.idle_seconds,
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="critical",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=0,
    )
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal again when it has ended: all else is ended then, as after Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


@contextmanager
def _browser(address: str, wanted: bool) -> Iterator[None]:
    """Open the address through a file that only its owner can read: all users can see the arguments of programs."""
    if not wanted:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="lostflops-") as folder:
        file = Path(folder) / "open.html"
        file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">', "utf-8")
        webbrowser.open(file.as_uri())
        yield
