"""Requests and their answers: first the guard, then the table of routes, then limits on parameters and body."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from typing import Any, Final

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from lostflops.core.errors import LostflopsError
from lostflops.show.serve.audit import AuditLog, find_address
from lostflops.show.serve.entrance import Entrance
from lostflops.show.serve.guard import HEADERS, find_reader, refusal
from lostflops.show.serve.routes import Parameters, Route
from lostflops.show.serve.sites import Destination, Site
from lostflops.show.serve.work import Stopped

MOST_BODY: Final = 64_000
_PIECE: Final = 64_000
"""An answer is sent in pieces of this many bytes, so that the copy that waits for a slow reader is small."""

_BODY: Final = "lostflops.body"
"""Key of the body in a request's scope, for the audit log."""


class _RefusedRequest(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class App:
    def __init__(self, site: Site, entrance: Entrance, audit: AuditLog | None = None) -> None:
        self._site, self._entrance, self._audit = site, entrance, audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = self._entrance.strip_base(scope["path"])
        destination = self._site.find(path)
        try:
            response = await self._answer(destination, scope, receive)
        except _RefusedRequest as error:
            response = _error(error.status, str(error))
        response = self._note(destination, path, scope, response)
        if response is not None:
            response.headers.update(HEADERS)
            await response(scope, receive, _in_pieces(send))

    async def _answer(self, destination: Destination | None, scope: Scope, receive: Receive) -> Response | None:
        """Answer a request; return None if the client is gone."""
        admitted = self._admit_request(destination, scope)
        parameters = _parameters(admitted.route, scope)
        body = await _body(admitted.route, Headers(scope=scope), receive)
        scope[_BODY] = body
        asked = asyncio.ensure_future(_respond_or_explain(admitted, parameters, body))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else None
        finally:
            asked.cancel()
            gone.cancel()

    def _admit_request(self, destination: Destination | None, scope: Scope) -> Destination:
        public = destination is not None and destination.route.public
        is_shell = destination is not None and destination.is_shell
        refused = refusal(Headers(scope=scope), self._entrance, public=public, is_shell=is_shell)
        if refused:
            raise _RefusedRequest(*refused)
        if destination is None:
            raise _RefusedRequest(404, "not found")
        if scope["method"] != destination.route.method:
            raise _RefusedRequest(405, f"use {destination.route.method} for this address")
        return destination

    def _note(
        self, destination: Destination | None, path: str, scope: Scope, response: Response | None
    ) -> Response | None:
        """Write a request to the audit log; an answer that cannot be noted is not given."""
        route = destination.route if destination is not None else None
        status = 499 if response is None else response.status_code
        if self._audit is None or (route and status == 200 and (route.public or route.is_routine)):
            return response
        headers = Headers(scope=scope)
        forwarded = ",".join(headers.getlist("x-forwarded-for"))
        entry = {
            "reader": find_reader(headers, self._entrance),
            "address": find_address(scope.get("client"), forwarded, is_proxied=self._entrance.is_proxied),
            "method": scope["method"],
            "path": path or scope["path"],
            "query": dict(QueryParams(scope["query_string"])),
            **({"body": scope[_BODY]} if scope.get(_BODY) is not None else {}),
            "status": status,
        }
        try:
            self._audit.record(entry)
        except OSError as error:
            print(f"lostflops: the audit log cannot be written: {error.strerror}", file=sys.stderr)
            return _error(503, "the audit log cannot be written: ask the owner of this server")
        return response


async def _respond_or_explain(destination: Destination, parameters: Parameters, body: Any) -> Response:
    route = destination.route
    try:
        subject = None if route.public else await destination.open()
        response = await route.answer(subject, parameters, body)
        if subject is not None:
            response.headers["Lostflops-Run"] = subject.identity
    except Stopped as error:
        return _error(503, str(error))
    except LostflopsError as error:
        return _error(422, str(error))
    except Exception:  # noqa: BLE001 - a bug is shown where it can be reported, and not to the page
        traceback.print_exc(file=sys.stderr)
        return _error(500, "internal error of Lostflops: see the terminal that runs lostflops serve")
    return response


def _parameters(route: Route, scope: Scope) -> Parameters:
    given = QueryParams(scope["query_string"])
    if sorted(name for name, _ in given.multi_items()) != sorted(route.parameters):
        raise _RefusedRequest(400, f"expected {', '.join(route.parameters) or 'no parameters'}")
    return dict(given)


async def _body(route: Route, headers: Headers, receive: Receive) -> Any:
    """Return the JSON object of a POST; other requests have no body."""
    most = MOST_BODY if route.method == "POST" else 0
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _RefusedRequest(400, "the request was cut off")
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > most:
            raise _RefusedRequest(413, f"a request may have at most {most:,} bytes")
    if not most:
        return None
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise _RefusedRequest(415, "a request must be JSON")
    try:
        found = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _RefusedRequest(400, "a request must be a JSON object")
    return found


def _in_pieces(send: Send) -> Send:
    async def send_pieces(message: Message) -> None:
        body = memoryview(message.get("body", b""))
        while len(body) > _PIECE:
            await send({**message, "body": bytes(body[:_PIECE]), "more_body": True})
            body = body[_PIECE:]
        await send({**message, "body": bytes(body)} if "body" in message else message)

    return send_pieces


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _error(status: int, why: str) -> Response:
    return Response(json.dumps({"error": why}), status, media_type="application/json")
