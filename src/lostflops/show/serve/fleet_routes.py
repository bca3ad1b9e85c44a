"""Requests that the page of a fleet may send, as one table; the pages of its runs have those of a run.

Each view is a piece of HTML with its title, made of the same answer that `lostflops fleet` prints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from lostflops.core.errors import UsageError
from lostflops.core.results import Figure, Result, Table
from lostflops.fleet.answer import answer_fleet
from lostflops.fleet.choose import ANY, FleetScope
from lostflops.fleet.host_answers import answer_host, answer_hosts
from lostflops.fleet.job_answers import SPARK, answer_job, answer_jobs
from lostflops.fleet.job_comparison import compare_jobs
from lostflops.fleet.regressions import JobStatus
from lostflops.fleet.run_answer import answer_run, find_address
from lostflops.show.report.fragments import Drawing, clip_text, draw_result, quote_name
from lostflops.show.report.html import asset
from lostflops.show.serve.fleet_filters import FILTERS, draw_comparison_choice, draw_filters
from lostflops.show.serve.fleet_page import FleetPage
from lostflops.show.serve.routes import Parameters, Route
from lostflops.show.serve.sites import RUN_ROUTES, Destination

KEY_LETTERS: Final = 16
"""Letters of the key of a run in the address of its page."""
_RUNS: Final = "/runs/"
_MOST_WIDTH: Final = 2400
_FEWEST_WIDTH: Final = 200
_LONGEST: Final = 500
"""Letters of a parameter."""
_SHELL: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
    '<title>lostflops</title><link rel="stylesheet" href="app.css"><link rel="stylesheet" href="fleet.css"></head>'
    '<body><div id="fleet"></div><script type="module" src="fleet.js"></script></body></html>'
)
"""The page without data, the same for every fleet: it asks for the data."""


async def shell(_page: None, _parameters: Parameters, _body: Any) -> Response:
    return Response(_SHELL, media_type="text/html")


async def script(_page: None, _parameters: Parameters, _body: Any) -> Response:
    return Response(_read_asset("fleet.js"), media_type="text/javascript")


async def style(_page: None, _parameters: Parameters, _body: Any) -> Response:
    return Response(_read_asset("fleet.css"), media_type="text/css")


async def base_style(_page: None, _parameters: Parameters, _body: Any) -> Response:
    return Response(asset("app.css"), media_type="text/css")


async def alive(_page: FleetPage, _parameters: Parameters, _body: Any) -> Response:
    """Return whether the server is there; the header says whether the fleet is still the same."""
    return Response("{}", media_type="application/json")


async def overview(page: FleetPage, parameters: Parameters, _body: Any) -> Response:
    scope, by = _read_scope(parameters), parameters["by"]
    key = "overview", scope.key, by
    result = await page.answer(key, lambda fleet, judged: answer_fleet(fleet, scope, by, judged))
    filters = draw_filters("overview", parameters, _figure(result, "labels"))
    return _draw(page, parameters, replace(result, title="Overview"), before=filters)


async def jobs(page: FleetPage, parameters: Parameters, _body: Any) -> Response:
    scope, order = _read_scope(parameters), parameters["order"]
    result = await page.answer(("jobs", scope.key), lambda fleet, judged: answer_jobs(fleet, scope, judged))
    return _draw(page, parameters, _order_jobs(result, order), before=draw_filters("jobs", parameters))


async def job(page: FleetPage, parameters: Parameters, _body: Any) -> Response:
    name = _check_name(parameters["name"])
    result = await page.answer(("job", name), lambda fleet, judged: answer_job(fleet, _exactly(name), judged))
    return _draw(page, parameters, result, after=draw_comparison_choice(name))


async def hosts(page: FleetPage, parameters: Parameters, _body: Any) -> Response:
    scope = _read_scope(parameters)
    result = await page.answer(("hosts", scope.key), lambda fleet, judged: answer_hosts(fleet, scope, judged))
    return _draw(page, parameters, result, before=draw_filters("hosts", parameters))


async def host(page: FleetPage, parameters: Parameters, _body: Any) -> Response:
    scope = FleetScope(host=_check_name(parameters["name"]))
    result = await page.answer(("host", scope.host), lambda fleet, judged: answer_host(fleet, scope, judged))
    return _draw(page, parameters, result)


async def compare(page: FleetPage, parameters: Parameters, _body: Any) -> Response:
    first, second = (_check_name(parameters[name]) for name in ("first", "second"))
    scope = _exactly(first)
    key = "compare", first, second
    result = await page.answer(key, lambda fleet, judged: compare_jobs(fleet, scope, second, judged))
    return _draw(page, parameters, result)


async def run(page: FleetPage, parameters: Parameters, _body: Any) -> Response:
    name = parameters["name"]
    result = await page.answer(("run", name), lambda fleet, _judged: answer_run(fleet, name))
    address = str(_figure(result, "address"))
    link = _link_page(page, name, address)
    if link:
        after = f'<p class="next"><a class="open" href="{link}">Open the page of this run</a></p>'
    else:
        command = clip_text(result.next_command, _LONGEST)
        after = (
            f'<p class="next">Open its page where it can be read: <span class="copyable"><code>{command}</code>'
            '<button type="button" class="copy">Copy</button></span></p>'
        )
    job_name = str(_figure(result, "job"))
    if quoted := quote_name(job_name):
        after += f'<p class="next"><a href="#/job/{quoted}">All runs of job {clip_text(job_name)}</a></p>'
    return _draw(page, parameters, result, before=after)


SCOPED: Final = (*FILTERS, "width")
FLEET_ROUTES: Final = (
    Route("/", shell, public=True),
    Route("/fleet.js", script, public=True),
    Route("/fleet.css", style, public=True),
    Route("/app.css", base_style, public=True),
    Route("/api/alive", alive, is_routine=True),
    Route("/api/overview", overview, (*SCOPED, "by")),
    Route("/api/jobs", jobs, (*SCOPED, "order")),
    Route("/api/job", job, ("name", "width")),
    Route("/api/hosts", hosts, SCOPED),
    Route("/api/host", host, ("name", "width")),
    Route("/api/compare", compare, ("first", "second", "width")),
    Route("/api/run", run, ("name", "width")),
)
_BY_PATH: Final = {route.path: route for route in FLEET_ROUTES}
ORDERS: Final = {"hours": "hours", "slower": "slower", "step": "step_ns", "mfu": "mfu", "newest": "start"}
"""Orders of jobs, the largest first, and the column of each."""


class FleetSite:
    """The page of a fleet, and the pages of its runs below `/runs/KEY/`."""

    def __init__(self, page: FleetPage) -> None:
        self._page = page

    def find(self, path: str) -> Destination | None:
        if path.startswith(_RUNS):
            key, _, rest = path.removeprefix(_RUNS).partition("/")
            route = RUN_ROUTES.get(f"/{rest}")
            is_key = len(key) == KEY_LETTERS and set(key) <= set("0123456789abcdef")
            is_inside = path.startswith(f"{_RUNS}{key}/")
            return Destination(route, lambda: self._open_run(key)) if route and is_key and is_inside else None
        found = _BY_PATH.get(path)
        return None if found is None else Destination(found, self._open_fleet)

    async def _open_fleet(self) -> FleetPage:
        return self._page

    async def _open_run(self, key: str) -> Any:
        address = await self._page.look_up(lambda fleet: find_address(fleet, key=key))
        if address is None:
            raise UsageError("this run is not in the fleet")
        return await self._page.runs.open(address)

    def close(self) -> bool:
        return self._page.close()


def make_key(run_name: str) -> str:
    """Return the key of a run: a part of an address that does not depend on what its name contains."""
    return sha256(run_name.encode("utf-8", "surrogatepass")).hexdigest()[:KEY_LETTERS]


def _draw(page: FleetPage, parameters: Parameters, result: Result, *, before: str = "", after: str = "") -> Response:
    is_overview = result.name == "fleet"
    drawing = Drawing(
        width=_read_width(parameters["width"]),
        links={
            **{(table, "job"): _link("job", "job") for table in ("fixes", "changes", "jobs", "runs")},
            **{(table, "host"): _link("host", "host") for table in ("slow_hosts", "hosts")},
            ("runs", "run"): lambda row: _link_run(page, row),
        },
        sparks={"jobs": (SPARK, "trend")} if result.name == "fleet_jobs" else {},
        rest={"jobs": "#/jobs", "slow_hosts": "#/hosts", "changes": "#/jobs?status=slower"} if is_overview else {},
        after_verdict=before,
    )
    html = f"<h2>{clip_text(result.title)}</h2>{draw_result(result, drawing)}{after}"
    name = "" if str(page.place).startswith("catalog:") else Path(str(page.place)).resolve().name
    body = {"title": result.title[:_LONGEST], "place": name, "html": html}
    return Response(json.dumps(body), media_type="application/json")


def _link(view: str, column: str) -> Any:
    def address(row: Mapping[str, Any]) -> str:
        quoted = quote_name(str(row[column]))
        return f"#/{view}/{quoted}" if quoted else ""

    return address


def _link_run(page: FleetPage, row: Mapping[str, Any]) -> str:
    """Return the page of a run where it can be opened, otherwise the view that says how."""
    name = str(row["run"])
    quoted = quote_name(name)
    return _link_page(page, name, str(row["address"])) or (f"#/run/{quoted}" if quoted else "")


def _link_page(page: FleetPage, name: str, address: str) -> str:
    return f"runs/{quote(make_key(name))}/" if page.runs.find_folder(address) is not None else ""


def _figure(result: Result, name: str) -> Any:
    return next(block.value for block in result.more if isinstance(block, Figure) and block.name == name)


def _order_jobs(result: Result, order: str) -> Result:
    """Put the jobs into another order, the largest first; those without a value come last."""
    column = ORDERS.get(order or "hours")
    if column is None:
        raise UsageError(f"no order has this name. Orders are: {', '.join(ORDERS)}")
    [table] = [block for block in result.blocks if isinstance(block, Table)]
    place = [field.name for field in table.fields].index(column)
    pairs = sorted(
        zip(table.rows, table.more, strict=True),
        key=lambda pair: (pair[0][place] is not None, pair[0][place] or 0),
        reverse=True,
    )
    rows, more = zip(*pairs, strict=True)
    return replace(result, blocks=(replace(table, rows=rows, more=more, most_shown=_MOST_JOBS),))


_MOST_JOBS: Final = 500


def _exactly(name: str) -> FleetScope:
    return FleetScope(job=name, is_pattern=False)


def _read_scope(parameters: Parameters) -> FleetScope:
    given = {name: parameters[name].strip()[:_LONGEST] for name in FILTERS}
    labels = {name: given[name] for name in ("team", "model") if given[name]}
    return FleetScope(
        job=given["job"] if ANY in given["job"] or not given["job"] else f"*{given['job']}*",
        host=given["host"],
        week=_read_week(given["week"]) if given["week"] else None,
        status=_read_status(given["status"]) if given["status"] else None,
        labels=labels,
    )


def _read_week(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError("the week must be one of its days, as in 2026-01-31") from None


def _read_status(text: str) -> JobStatus:
    try:
        return JobStatus(text)
    except ValueError:
        raise UsageError(f"the status must be one of {', '.join(JobStatus)}") from None


def _check_name(name: str) -> str:
    if not name or len(name) > _LONGEST:
        raise UsageError("the address names no job or host: choose one in a list")
    return name


def _read_width(text: str) -> int:
    width = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 1100
    return min(max(width, _FEWEST_WIDTH), _MOST_WIDTH)


def _read_asset(name: str) -> str:
    return (files("lostflops.show.serve") / "assets" / name).read_text("utf-8")
