"""Colours of the page, by computation: they stand out from the page, and people with any colour vision tell them apart.

Each domain (time, memory, phases, events, series, code) has a palette. Any two of its colours may be adjacent.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Final

import pytest

from lostflops.account.ledger.lines import HOST_LINES, LINES
from lostflops.account.ledger.phases import PHASES
from lostflops.account.memory.owners import OWNERS
from lostflops.show.report.colours import CODES, SERIES
from tests.ui.sight import SIGHTS, Colour, ciede2000, contrast, difference, mix, oklch, parse_hex
from tests.ui.stylesheet import read_table, read_variables

LEAST_CONTRAST: Final = 3.0
"""Of causes and series and the page: WCAG 2.2, success criterion 1.4.11, for graphical objects."""
LEAST_VISIBLE: Final = 1.5
"""Of any colour and the page. The quiet ones are wide or have a label beside them."""
LEAST_DIFFERENCE: Final = 12.0
"""CIEDE2000 of two colours of a domain, with normal sight; about 1 is just noticeable. The muted scheme of 9 colours in
Tol, "Colour Schemes" (SRON/EPS/TN/09-002, 2012), has 15.0 by the same computation; the lines of time are 13."""
LEAST_DEFICIENT: Final = 8.0
"""The same with any of the three deficiencies: Tol's bright scheme of 7 colours has 8.6, that of Okabe and Ito ("Color
Universal Design", 2008) 10.9, matplotlib's tab10 1.3."""
LEAST_BETWEEN: Final = 10.0
"""CIEDE2000 of a line of time and a colour of another domain, which must not look like it."""
STRIPE: Final = 3 / 8
"""Part of hatching that is stripe, as in ui/src/hatching.ts."""
TINT_DEGREES: Final = 15.0

THEMES = pytest.mark.parametrize("theme", ["light", "dark"])
WAITS = ("comm.wait", "comm.bubble", "idle.dependency")
Palette = dict[str, Colour]


def variables(theme: str) -> Palette:
    return {name: parse_hex(text) for name, text in read_variables(theme).items()}


def palettes(theme: str) -> dict[str, Palette]:
    """Return each domain's colours by kind; those of waits as an eye mixes their stripes."""
    found = variables(theme)

    def shown(variable: str) -> Colour:
        ground = found.get(f"{variable}-ground")
        return mix(found[variable], ground, STRIPE) if ground else found[variable]

    lines = read_table("colours.ts", "TIME")
    phases = read_table("colours.ts", "PHASES")
    events = {"idle": "--idle", **read_table("timeline/palette.ts", "EVENTS")}
    del events["device_annotation"]  # an annotation, too
    return {
        "time": {line: shown(lines[line]) for line in LINES if line != "idle.bubble"},
        "memory": {owner: shown(name) for owner, name in read_table("colours.ts", "MEMORY").items()},
        "phases": {phase: shown(name) for phase, name in phases.items() if name.startswith("--phase-")},
        "events": {kind: shown(name) for kind, name in events.items()},
        "series": {name: colour for name, colour in found.items() if name.startswith("--series-")},
        "code": {code: parse_hex(fill) for code, fill in CODES.items()},
    }


def test_differences_are_those_of_the_paper() -> None:
    """Rows 1, 6, 17, 25 and 34 of table 1 in Sharma, Wu and Dalal (2005)."""
    known = (
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1.3802, -84.2814), (50, 0, -82.7485), 1.0),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    )
    for first, second, expected in known:
        assert round(ciede2000(first, second), 4) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("sight", SIGHTS)
def test_all_kinds_of_sight_see_greys(sight: str) -> None:
    grey = parse_hex("#808080")
    seen = [sum(part * light for part, light in zip(row, grey, strict=True)) for row in SIGHTS[sight]]
    assert seen == pytest.approx(list(grey), abs=1e-5)


def test_whatever_has_a_meaning_has_a_colour() -> None:
    assert set(LINES) <= set(read_table("colours.ts", "TIME"))
    assert set(OWNERS) == set(read_table("colours.ts", "MEMORY"))
    assert set(PHASES) <= set(read_table("colours.ts", "PHASES"))


@THEMES
def test_colours_stand_out_from_the_page(theme: str) -> None:
    found = variables(theme)
    for domain, colours in palettes(theme).items():
        for kind, colour in colours.items():
            least = LEAST_CONTRAST if kind in HOST_LINES or domain == "series" else LEAST_VISIBLE
            assert contrast(colour, found["--page"]) >= least, kind
            assert contrast(colour, found["--card"]) >= LEAST_VISIBLE, kind


@THEMES
@pytest.mark.parametrize("sight", SIGHTS)
def test_no_two_colours_of_a_domain_look_alike(theme: str, sight: str) -> None:
    least = LEAST_DIFFERENCE if sight == "normal" else LEAST_DEFICIENT
    alike = [
        (domain, *kinds, round(found, 1))
        for domain, colours in palettes(theme).items()
        for kinds in combinations(colours, 2)
        if (found := difference(colours[kinds[0]], colours[kinds[1]], sight)) < least
    ]
    assert alike == []


@THEMES
def test_passes_differ_from_the_bubbles_between_them(theme: str) -> None:
    found = palettes(theme)
    for (phase, sight), wait in product(product(found["phases"], SIGHTS), WAITS):
        least = LEAST_DIFFERENCE if sight == "normal" else LEAST_DEFICIENT
        assert difference(found["phases"][phase], found["time"][wait], sight) >= least, (phase, wait, sight)


@THEMES
def test_a_colour_of_time_means_nothing_else(theme: str) -> None:
    found = palettes(theme)
    others = {
        kind: colour for domain in ("memory", "phases", "events", "code") for kind, colour in found[domain].items()
    }
    alike = [
        (line, kind, round(near, 1))
        for (line, colour), (kind, other) in product(found["time"].items(), others.items())
        if (near := difference(colour, other)) < LEAST_BETWEEN
    ]
    assert alike == []


@THEMES
def test_causes_are_warm_and_the_most_saturated(theme: str) -> None:
    lines = palettes(theme)["time"]
    causes = {line: oklch(colour) for line, colour in lines.items() if line in HOST_LINES}
    # From purple over red to orange.
    assert all(hue >= 305 or hue <= 70 for _, _, hue in causes.values())
    dullest = min(chroma for _, chroma, _ in causes.values())
    assert all(oklch(colour)[1] < dullest for line, colour in lines.items() if line not in causes)


@THEMES
def test_waits_are_stripes_on_a_tint_of_a_cause(theme: str) -> None:
    found, lines = variables(theme), read_table("colours.ts", "TIME")
    stripes = {line: found[lines[line]] for line in WAITS}
    grounds = {line: found[f"{lines[line]}-ground"] for line in WAITS}
    assert all(contrast(stripes[line], grounds[line]) >= LEAST_VISIBLE for line in WAITS)
    assert all(oklch(stripes[line])[1] < oklch(found["--idle-host"])[1] for line in WAITS)
    apart = oklch(stripes["comm.wait"])[2] - oklch(found["--idle-host"])[2]
    assert abs((apart + 180) % 360 - 180) <= TINT_DEGREES
    assert lines["idle.bubble"] == lines["comm.bubble"]


def test_pictures_of_python_have_the_colours_of_the_page() -> None:
    light = read_variables("light")
    assert [light[f"--series-{place}"] for place in range(len(SERIES))] == list(SERIES)
    assert f"--series-{len(SERIES)}" not in light
    assert read_table("codes.ts", "CODES") == CODES
