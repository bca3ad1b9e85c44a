"""Connections with limits: on their number, and on the time that each may make the server wait for its client.

A connection waits for its client between the start of a request and its end, between requests, and while the client
does not read an answer. Work on an answer has limits of its own.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from lostflops.show.serve.guard import HEADERS
from lostflops.show.serve.limits import ServeLimits

_TOO_MANY: Final = Response(
    json.dumps({"error": "too many connections at once; close other pages of this server and try again"}),
    503,
    {**HEADERS, "Connection": "close"},
    "application/json",
)


class LimitedConnection(H11Protocol):  # type: ignore[misc] # checks must not depend on whether uvicorn is installed
    def __init__(self, limits: ServeLimits, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._is_between_requests = False

    @property
    def waits_until(self) -> float | None:
        """Time of the loop at which the client is given up; None while the server works for it."""
        return self._deadline.when() if self._deadline else None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections and not self._make_room():
            self.app = _TOO_MANY
        self._wait_for_client(self._limits.request_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        if self._is_between_requests and not self.flow.write_paused:
            self._wait_for_client(self._limits.request_seconds)
        self._is_between_requests = False
        super().data_received(data)
        if self._is_working() and not self.flow.write_paused:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._is_between_requests = True
        super().on_response_complete()  # also begins with the next request if that is here
        if self._is_working():
            self._is_between_requests = False
        elif not self.flow.write_paused:
            self._wait_for_next_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_client(self._limits.stall_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_working():
            self._stop_waiting()
        else:
            self._wait_for_next_request()

    def _is_working(self) -> bool:
        """Return whether a request is complete and its answer is not."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _wait_for_next_request(self) -> None:
        # uvicorn closes it after `idle_seconds`; a client that does not read the end of its answer keeps it open.
        self._wait_for_client(self._limits.idle_seconds + self._limits.stall_seconds)

    def _wait_for_client(self, seconds: float) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _make_room(self) -> bool:
        """Close the connection that is given up soonest, so that clients that send nothing keep nobody out; return
        whether there is one."""
        others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
        waiting = [one for one in others if one.waits_until is not None]
        if not waiting:
            return False
        min(waiting, key=lambda one: one.waits_until).transport.abort()
        return True
