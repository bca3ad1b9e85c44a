"""Requests that a live page may send, as one table: tests derive from it every request that must be refused.

Paths have no variable parts. Variable values are parameters that the route names, or a small JSON body.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final

from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from lostflops.core.errors import UsageError
from lostflops.core.pictures import Events
from lostflops.core.results import Page, Result, Stacks
from lostflops.explain.analyze.selection import selection as sum_selection
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.pages.page import STANDING, TITLES, page_of
from lostflops.show.pages.stacks import limit_stacks
from lostflops.show.report.html import asset
from lostflops.show.report.view import View
from lostflops.show.serve.live import EventWindow, LivePage, Progress
from lostflops.show.serve.packing import pack_page, pack_view
from lostflops.show.serve.queries import tables
from lostflops.show.serve.sections import COMPARED, COMPARISON, GROUPS
from lostflops.store.run import Run

MOST_EVENTS: Final = 50_000
MOST_FRAMES: Final = 30_000
"""The stacks of a selection have at most this many frames: an answer takes a fraction of a second."""
MOST_CHANGES: Final = 16
SHELL: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
    '<title>lostflops</title><link rel="stylesheet" href="app.css"></head><body><div id="app"></div>'
    '<script type="module" src="app.js"></script></body></html>'
)
"""The page without data, the same for every run: it asks for the data."""

Parameters = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Route:
    """A path with its only method."""

    path: str
    answer: Callable[[Any, Parameters, Any], Awaitable[Response]]
    """From what it is asked about, parameters and body."""
    parameters: tuple[str, ...] = ()
    method: str = "GET"
    public: bool = False
    """Answered without the token; it says nothing about the run."""
    is_routine: bool = False
    """A page asks it all the time by itself, and it reveals no data: an audit log leaves it out."""


async def shell(_live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    return Response(SHELL, media_type="text/html")


async def script(_live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    return Response(asset("app.js"), media_type="text/javascript")


async def style(_live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    return Response(asset("app.css"), media_type="text/css")


async def questions(live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    """Return the page without its results, its sections, the groups in which to ask for them, and the tables for
    SQL."""
    page = View().page(Page(live.title, (), GLOSSARY, (), STANDING))
    asked = (*GROUPS, *([COMPARISON] if live.has_other else []))
    groups = [{"name": group.name, "doing": group.doing, "sections": group.sections} for group in asked]
    sections = [*TITLES.items(), *(COMPARED.items() if live.has_other else [])]
    return _json({"page": page, "sections": sections, "groups": groups, "tables": tables()})


async def alive(_live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    """Return whether the server is there; the header says whether the run is still the same."""
    return _json({})


async def progress(live: LivePage, _parameters: Parameters, _body: Any) -> Response:
    """Return how many ranks each unfinished group has read, of how many."""
    return _json(live.progress)


async def result(live: LivePage, parameters: Parameters, _body: Any) -> Response:
    """Return a page with the results of a group, packed as in a file; without those that are missing, with reasons."""
    if parameters["name"] == COMPARISON.name:
        return _bytes(await live.keep_comparison(COMPARISON.name, _compared))
    group = _GROUPS.get(parameters["name"])
    if group is None:
        raise UsageError(f"no view has this name. Views are: {', '.join(_GROUPS)}")

    def answer(run: Run, note: Progress) -> bytes:
        return pack_page(page_of(run, group.questions, progress_in_question=note))

    return _bytes(await live.keep_answer(group.name, answer))


async def events(live: LivePage, parameters: Parameters, _body: Any) -> Response:
    """Return events of some ranks in a window, the longest first."""
    ranks = [_whole(one, "ranks") for one in parameters["ranks"].split(",")]
    start, stop = _whole(parameters["start"], "start"), _whole(parameters["stop"], "stop")
    most = max(0, min(_whole(parameters["most"], "most"), MOST_EVENTS))

    def pack(found: Events) -> bytes:
        view = View()
        return pack_view(view.events(found), view)

    return _bytes(await live.events(ranks, EventWindow(start, stop, most), pack))


async def selection(live: LivePage, parameters: Parameters, _body: Any) -> Response:
    """Return the totals of some ranks, or of all if none is given, in a part of the timeline or in steps."""
    ranks = [_whole(one, "ranks") for one in parameters["ranks"].split(",")] if parameters["ranks"] else []
    start, stop = _whole(parameters["start"], "start"), _whole(parameters["stop"], "stop")
    first, _, last = parameters["steps"].partition("-")
    steps = (_whole(first, "steps"), _whole(last, "steps")) if parameters["steps"] else None
    asked = partial(sum_selection, ranks=ranks, start=start, stop=stop, steps=steps)
    return _bytes(await live.selection(asked, _pack_selection))


def _pack_selection(found: Result) -> bytes:
    blocks = (limit_stacks(block, MOST_FRAMES) if isinstance(block, Stacks) else block for block in found.blocks)
    return pack_page(Page("", (replace(found, blocks=tuple(blocks)),), {}))


async def whatif(live: LivePage, _parameters: Parameters, body: Any) -> Response:
    changes = body.get("changes")
    if not (isinstance(changes, list) and len(changes) <= MOST_CHANGES and all(map(_is_change, changes))):
        raise UsageError("changes must be a list of pairs, each a name and a value")
    return _bytes(await live.try_changes([(name, value) for name, value in changes]))


async def sql(live: LivePage, _parameters: Parameters, body: Any) -> Response:
    query = body.get("query")
    if not isinstance(query, str):
        raise UsageError("the query must be a string")
    return _bytes(await live.sql(query))


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
    Route("/api/alive", alive, is_routine=True),
    Route("/api/progress", progress, is_routine=True),
    Route("/api/result", result, ("name",)),
    Route("/api/events", events, ("ranks", "start", "stop", "most")),
    Route("/api/selection", selection, ("ranks", "start", "stop", "steps")),
    Route("/api/perfetto", perfetto),
    Route("/api/whatif", whatif, method="POST"),
    Route("/api/sql", sql, method="POST"),
)

_GROUPS: Final = {group.name: group for group in GROUPS}


def _compared(page: Page) -> bytes:
    return pack_page(replace(page, results=tuple(result for result in page.results if result.name in COMPARED)))


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
