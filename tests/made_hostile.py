"""Strings that would do something if anything took them for more than text, and how they get into everything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from lostflops.testing import Losses, Straggler, SyntheticCluster

ELSEWHERE = "http://127.0.0.1:9/pwned"
DOES = f"window.pwned=1;alert(1);fetch('{ELSEWHERE}')"
PAYLOADS = (
    f"<script>{DOES}</script>",
    f"</script><script>{DOES}</script>",
    f'"><img src=x onerror="{DOES}">',
    f"'><svg/onload={DOES}>",
    f"javascript:{DOES}",
    f"{{{{constructor.constructor('{DOES}')()}}}}${{{DOES}}}",
    f"\u2028{DOES}\u2029//",
    f"]]><script>{DOES}</script>",
    f"--><!--<script>{DOES}</script>",
    f"</title></style></textarea><script>{DOES}</script>",
    f"red;background:url({ELSEWHERE});}}*{{background:url({ELSEWHERE})}}",
    f"</style><style>@import url({ELSEWHERE});</style>",
    f"<iframe srcdoc='<script>parent.{DOES}</script>'></iframe>",
    f"<a href=\"javascript:{DOES}\" autofocus onfocus='{DOES}'>x</a>",
    f"<base href={ELSEWHERE}><link rel=stylesheet href={ELSEWHERE}>",
    f"<meta http-equiv=refresh content='0;url={ELSEWHERE}'>",
    "__proto__",
    "constructor",
    "\u202eright to left\u2066\u200f",
    "nul\x00bell\x07escape\x1b]0;pwned\x07",
    "long" * 5_000,
    "' or 1=1; drop table events; --",
    "../../../../etc/passwd",
)

# What readers and the page tell kinds by: anything else in these places is refused before it is drawn.
KEPT = {"ph", "cat", "bp", "s", "dtype"}
MEANT = {"unit", "drawn"}


class Payloads:
    """Every one in turn, so that a few hundred strings carry all of them."""

    def __init__(self) -> None:
        self.numbers = count()

    def next(self) -> str:
        return PAYLOADS[next(self.numbers) % len(PAYLOADS)]


def write_hostile_traces(folder: Path, *, bare: bool) -> None:
    """Two ranks. A `bare` string is a payload alone; otherwise it stands behind what was recorded, which keeps its
    meaning, so that more views have something to show."""
    cluster = SyntheticCluster(
        ranks=2,
        steps=3,
        losses=Losses(data=3_000_000, copy_bytes=1_000_000, sync=1, python=1_000_000),
        stragglers=(Straggler(1, "slow_kernels", factor=1.5),),
        stacks=True,
        annotations=True,
    )
    payloads = Payloads()
    folder.mkdir()
    for number, trace in enumerate(cluster.generate().traces):
        poisoned = _poisoned(json.loads(trace.text()), payloads, bare)
        name = f"rank{number}<img src=x onerror=window.pwned=1>'\".pt.trace.json"
        (folder / name).write_text(json.dumps(poisoned), encoding="utf-8")


def _poisoned(value: Any, payloads: Payloads, bare: bool, key: str = "") -> Any:
    match value:
        case dict():
            found = {name: _poisoned(one, payloads, bare, name) for name, one in value.items()}
            return found | {payloads.next(): payloads.next()} if key == "args" else found
        case list():
            return [_poisoned(one, payloads, bare, key) for one in value]
        case str() if key not in KEPT:
            return payloads.next() if bare else value + payloads.next()
        case _:
            return value


def hostile_page(value: Any, payloads: Payloads) -> Any:
    """The same page with a payload behind every string, whatever it says."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: hostile_page(getattr(value, field.name), payloads)
            for field in fields(value)
            if field.name not in MEANT
        }
        return replace(value, **changed)
    if isinstance(value, Mapping):
        return {hostile_page(key, payloads): hostile_page(one, payloads) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(hostile_page(one, payloads) for one in value)
    if isinstance(value, list):
        return [hostile_page(one, payloads) for one in value]
    return value + payloads.next() if isinstance(value, str) else value
