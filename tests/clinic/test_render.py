"""The page of results, from results made up."""

from typing import Any

from clinic.render import LISTED, main, page
from clinic.scoring import Finding, Outcome


def results(*outcomes: Outcome) -> dict[str, Any]:
    return {"machine": "x86_64, 2 cores", "versions": {"torch": "2"}, "patients": [one.to_json() for one in outcomes]}


def test_sets_are_compared_and_the_newest_is_listed() -> None:
    seen = results(Outcome("a_real", ("gc",), True, (Finding("gc", 0.2),), 0.25), Outcome("a_made", (), False))
    unseen = results(Outcome("b_real", ("gc",), True, (Finding("sync", 0.2),), 0.25))
    text = page({"patients": seen, LISTED: unseen})
    sets, newest = text.split("### The newest set")
    rows = [line.split("|")[1:3] for line in sets.splitlines() if "(" in line and line.startswith("|")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["sixth", "0 of 1 (0%)"],
        ["development", "1 of 1 (100%)"],
    ]
    assert "Measured on x86_64, 2 cores, torch 2." in newest
    assert "b_real" in newest
    assert "a_real" not in text


def test_without_results_it_says_so() -> None:
    assert "The clinic has not been run yet." in page({})


def test_the_page_is_fresh() -> None:
    assert main(["--check"]) == 0
