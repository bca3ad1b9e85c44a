"""A server that only a browser believes in: a live page in a second, whose answers a test holds back or refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from lostflops.core.pictures import Events, Lane, Meetings
from lostflops.core.results import Page, Result
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.report.html import asset
from lostflops.show.report.view import View, pack_data

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab
    from playwright.sync_api import Route

ADDRESS = "http://localhost:9"
SHELL = (
    '<!doctype html><html lang="en"><head><link rel="icon" href="data:,"><link rel="stylesheet" href="/app.css"></head>'
    '<body><div id="app"></div><script type="module" src="/app.js"></script></body></html>'
)


def kernels(ranks: list[int], start: int, dur: int, name: str = "gemm") -> Events:
    """Return one kernel of each rank."""
    count = len(ranks)
    zeros = [0] * count
    return Events(
        rows=tuple(f"rank {rank}" for rank in ranks),
        lanes=tuple(Lane(place, "stream 7", 1) for place in range(count)),
        kinds=("kernel",),
        names=(name,),
        start=[start] * count,
        dur=[dur] * count,
        kind=zeros,
        name=zeros,
        event=[5] * count,
        launch=zeros,
        wait=zeros,
        meetings=Meetings([], [], [], [], [], [], [], ()),
    )


@dataclass
class MadeServer:
    results: tuple[Result, ...]
    """In the order of the page."""
    order: tuple[str, ...]
    """Names of results, in the order in which a page asks."""
    events: Callable[[list[int], int, int], Events] = lambda ranks, start, stop: kernels(ranks, start, stop - start)
    """Answers for ranks and a window."""
    withheld: set[str] = field(default_factory=set)
    """Names of results that are not answered until they are released."""
    refusal: str = ""
    """Why questions for events are refused; empty where they are answered."""
    asked: list[list[int]] = field(default_factory=list)
    """Ranks of each question for events."""
    waiting: dict[str, Route] = field(default_factory=dict)

    def listen(self, tab: Tab) -> None:
        tab.route(f"{ADDRESS}/**", self._answer)

    def release(self, name: str) -> None:
        self.withheld.discard(name)
        self._result(self.waiting.pop(name), name)

    def _answer(self, route: Route) -> None:
        address = urlsplit(route.request.url)
        parameters = {name: values[0] for name, values in parse_qs(address.query).items()}
        files = {"/": ("text/html", SHELL), **{f"/app.{end}": (kind, "") for end, kind in _ASSETS.items()}}
        if address.path in files:
            kind, text = files[address.path]
            route.fulfill(content_type=kind, body=text or asset(address.path[1:]))
        elif address.path == "/api/questions":
            route.fulfill(json=self._questions())
        elif address.path == "/api/result":
            self._result(route, parameters["name"])
        elif address.path == "/api/events":
            self._events(route, parameters)
        else:
            route.fulfill(json={})

    def _questions(self) -> dict[str, Any]:
        groups = [{"name": name, "doing": "Working", "sections": [name]} for name in self.order]
        sections = [[result.name, result.title] for result in self.results]
        return {"page": View().page(Page("made", (), GLOSSARY)), "sections": sections, "groups": groups, "tables": []}

    def _result(self, route: Route, name: str) -> None:
        if name in self.withheld:
            self.waiting[name] = route
            return
        view = View()
        [result] = [one for one in self.results if one.name == name]
        page = view.page(Page("", (result,), {}))
        route.fulfill(body=json.dumps(pack_data(page, view.blobs)))

    def _events(self, route: Route, parameters: dict[str, str]) -> None:
        ranks = [int(rank) for rank in parameters["ranks"].split(",")]
        self.asked.append(ranks)
        if self.refusal:
            route.fulfill(status=400, json={"error": self.refusal})
            return
        view = View()
        found = view.events(self.events(ranks, int(parameters["start"]), int(parameters["stop"])))
        route.fulfill(body=json.dumps(pack_data(found, view.blobs)))


_ASSETS = {"js": "text/javascript", "css": "text/css"}
