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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from html import escape
from pathlib import Path

import uvicorn

from lostflops.core.errors import UsageError
from lostflops.show.serve.app import App
from lostflops.show.serve.connections import LimitedConnection
from lostflops.show.serve.limits import ServeLimits
from lostflops.show.serve.live import LivePage
from lostflops.store.memory_limit import limit_memory

HOST = "127.0.0.1"


def serve(
    path: Path,
    port: int,
    tell: Callable[[str], None],
    *,
    browser: bool,
    other: Path | None = None,
    limits: ServeLimits | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM.

    `tell` is called once, with the address and its token; `other` is a run to compare with.
    """
    limits = limits or ServeLimits.within(limit_memory())
    with _listening(port) as listener:
        live = LivePage(path, other, limits)
        own_port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
        address = f"http://{HOST}:{own_port}/#token={token}"
        tell(address)
        with _browser(address, browser):
            _run(App(live, own_port, token), listener, limits)
    if not live.close():
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
