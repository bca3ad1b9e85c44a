"""Forms of a fleet's page: which runs a view is about. Their values are in the address of the view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lostflops.core.units import pluralise
from lostflops.fleet.hours import GROUPS
from lostflops.fleet.regressions import JobStatus
from lostflops.show.report.fragments import clip_text, quote_name

FILTERS: Final = ("job", "team", "model", "host", "week", "status")
_HINTS: Final = {
    "job": "part of its name",
    "team": "label",
    "model": "label",
    "host": "its name",
    "week": "2026-01-31",
}
_ORDERS: Final = {"": "hours", "slower": "slower", "step": "step", "mfu": "MFU", "newest": "newest run"}
_NARROW: Final = 600
_SLOW_BY: Final = "host"
"""Not offered: the list of hosts shows more."""


def draw_filters(view: str, parameters: Mapping[str, str], labels: Sequence[str] = ()) -> str:
    """Return the form of a view with the values that it is drawn with."""
    texts = "".join(_input(name, parameters[name]) for name in FILTERS if name in _HINTS)
    choices = _select("status", {"": "any", **{status: status for status in JobStatus}}, parameters["status"])
    if view == "jobs":
        choices += _select("order", _ORDERS, parameters["order"], "largest first by")
    if view == "overview":
        groups = [name for name in (*GROUPS, *labels) if name not in {"cause", _SLOW_BY}]
        choices += _select("by", {"": "cause", **{name: name for name in groups}}, parameters["by"], "hours by")
    chosen = sum(bool(parameters[name]) for name in FILTERS)
    clear = f'<a href="#/{view}">Clear</a>' if chosen else ""
    count = f": {pluralise(chosen, 'filter')}" if chosen else ""
    is_open = " open" if chosen or not is_narrow(parameters["width"]) else ""
    return (
        f'<details class="choose"{is_open}><summary>Choose runs{count}</summary><form class="filters" '
        f'data-view="{view}">{texts}{choices}<button type="submit">Choose</button>{clear}</form></details>'
    )


def is_narrow(width: str) -> bool:
    """Return whether a page is as narrow as on a phone, where a form would fill the screen."""
    return width.isascii() and width.isdecimal() and int(width[:6]) < _NARROW


def draw_comparison_choice(job: str) -> str:
    """Return the form that asks for a job to compare with."""
    quoted = quote_name(job)
    if not quoted:
        return ""
    return (
        f'<form class="filters" data-compare="{quoted}"><label>Compare with job <input name="other" required '
        f'maxlength="400" autocomplete="off"></label><button type="submit">Compare</button></form>'
    )


def _input(name: str, value: str) -> str:
    return (
        f'<label>{name} <input name="{name}" value="{clip_text(value, 500)}" placeholder="{_HINTS[name]}" '
        f'maxlength="400" autocomplete="off" size="12"></label>'
    )


def _select(name: str, options: Mapping[str, str], chosen: str, label: str = "") -> str:
    items = "".join(
        f'<option value="{clip_text(value)}"{" selected" if value == chosen else ""}>{clip_text(text)}</option>'
        for value, text in options.items()
    )
    return f'<label>{label or name} <select name="{name}">{items}</select></label>'
