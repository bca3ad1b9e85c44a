"""Requests that a live page may send, as one table: tests derive from it every request that must be refused.

Paths have no variable parts. Variable values are parameters that the route names, or a small JSON body.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final

from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from lostflops.core.errors import UsageError
from lostflops.core.pictures import Events
from lostflops.core.results import Page
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.pages.page import QUESTIONS, STANDING, page_of
from lostflops.show.report.html import asset
from lostflops.show.report.view import View, pack_data
from lostflops.show.serve.live import EventWindow, LivePage
from lostflops.show.serve.queries import tables

MOST_EVENTS: Final = 50_000
MOST_CHANGES: Final = 16
SHELL: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
    '<title>lostflops</title><link rel="stylesheet" href="/app.css"></head><body><main id="app"></main>'
    '<script type="module" src="/app.js"></script></body></html>'
)
"""The page without data, the same for every run: it asks for the data."""

Parameters = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Route:
    """A path with its only method."""

    path: str
    answer: Callable[[LivePage, Parameters, Any], Awaitable[Response]]
    parameters: tuple[str, ...] = ()
    method: str = "GET"
    public: bool = False
    """Answered without the token; it says nothing about the run."""


async def shell(_live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    return Response(SHELL, media_type="text/html")


async def script(_live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    return Response(asset("app.js"), media_type="text/javascript")


async def style(_live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    return Response(asset("app.css"), media_type="text/css")


async def questions(live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    """Return the page without its results, their names, and the tables for SQL."""
    page = View().page(Page(live.title, (), GLOSSARY, (), STANDING))
    return _json({"page": page, "questions": list(_QUESTIONS), "tables": tables()})


async def alive(_live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    """Return whether the server is there; the header says whether the run is still the same."""
    return _json({})


async def result(live: LivePage, parameters: Parameters, _body: Any) -> Response:
    """Return a page of one result, packed as in a file; or of no result, with the reason."""
    question = _QUESTIONS.get(parameters["name"])
    if question is None:
        raise UsageError(f"no view has this name. Views are: {', '.join(_QUESTIONS)}")
    return _bytes(await live.keep_answer(parameters["name"], lambda run: _page(page_of(run, [question]))))


async def events(live: LivePage, parameters: Parameters, _body: Any) -> Response:
    """Return events of some ranks in a window, the longest first."""
    ranks = [_whole(one, "ranks") for one in parameters["ranks"].split(",")]
    start, stop = _whole(parameters["start"], "start"), _whole(parameters["stop"], "stop")
    most = max(0, min(_whole(parameters["most"], "most"), MOST_EVENTS))

    def pack(found: Events) -> bytes:
        view = View()
        return _pack_view(view.events(found), view)

    return _bytes(await live.events(ranks, EventWindow(start, stop, most), pack))


async def whatif(live: LivePage, _parameters: Parameters, body: Any) -> Response:
    changes = body.get("changes")
    if not (isinstance(changes, list) and len(changes) <= MOST_CHANGES and all(map(_is_change, changes))):
        raise UsageError("changes must be a list of pairs, each a name and a value")
    return _json(asdict(await live.try_changes([(name, value) for name, value in changes])))


async def sql(live: LivePage, _parameters: Parameters, body: Any) -> Response:
    query = body.get("query")
    if not isinstance(query, str):
        raise UsageError("the query must be a string")
    return _bytes(await live.sql(query, lambda found: _page(Page("", (found,), {}))))


async def perfetto(live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    """Return a trace for the Perfetto UI, compressed; the file is deleted once it was sent."""
    folder = Path(mkdtemp(prefix="lostflops-"))
    try:
        await live.write_trace(folder / "trace.gz")
    except BaseException:
        rmtree(folder)
        raise
    return FileResponse(
        folder / "trace.gz", media_type="application/octet-stream", background=BackgroundTask(rmtree, folder)
    )


ROUTES: Final = (
    Route("/", shell, public=True),
    Route("/app.js", script, public=True),
    Route("/app.css", style, public=True),
    Route("/api/questions", questions),
    Route("/api/alive", alive),
    Route("/api/result", result, ("name",)),
    Route("/api/events", events, ("ranks", "start", "stop", "most")),
    Route("/api/perfetto", perfetto),
    Route("/api/whatif", whatif, method="POST"),
    Route("/api/sql", sql, method="POST"),
)

_QUESTIONS: Final = {question.__name__.strip("_"): question for question in QUESTIONS}


def _page(page: Page) -> bytes:
    view = View()
    return _pack_view(view.page(replace(page, glossary={})), view)


def _pack_view(data: Mapping[str, Any], view: View) -> bytes:
    return json.dumps(pack_data(data, view.blobs)).encode()


def _json(data: Any) -> Response:
    return Response(json.dumps(data, allow_nan=False), media_type="application/json")


def _bytes(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _is_change(change: Any) -> bool:
    return isinstance(change, list) and len(change) == 2 and all(isinstance(word, str) for word in change)


def _whole(text: str, name: str) -> int:
    """Parse a whole number.

    >>> _whole("-12", "start")
    -12
    """
    if not (text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 20):
        raise UsageError(f"{name} is not a whole number")
    return int(text)
