"""What a server serves: from the path of a request to the route that answers it, and to what this is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lostflops.show.serve.live import LivePage
from lostflops.show.serve.routes import ROUTES, Route


@dataclass(frozen=True, slots=True)
class Destination:
    """A route, and what it is asked about."""

    route: Route
    open: Callable[[], Awaitable[Any]]
    """Return what the route is asked about; only called for requests that were let in."""

    @property
    def is_shell(self) -> bool:
        return self.route.path == "/"


class Site(Protocol):
    """All paths of a server."""

    def find(self, path: str) -> Destination | None:
        """Return where a path leads."""

    def close(self) -> bool:
        """Stop all work; return whether it ended."""


class RunSite:
    """The page of one run."""

    def __init__(self, live: LivePage) -> None:
        self._live = live

    def find(self, path: str) -> Destination | None:
        route = RUN_ROUTES.get(path)
        return None if route is None else Destination(route, self._open)

    async def _open(self) -> LivePage:
        return self._live

    def close(self) -> bool:
        return self._live.close()


RUN_ROUTES: Final = {route.path: route for route in ROUTES}
