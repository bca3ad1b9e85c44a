"""The page of results, from results made up."""

from typing import Any

from clinic.render import main, page
from clinic.scoring import Finding, Outcome


def results(*outcomes: Outcome) -> dict[str, Any]:
    return {"machine": "x86_64, 2 cores", "versions": {"torch": "2"}, "patients": [one.to_json() for one in outcomes]}


def test_held_out_patients_stand_apart_and_first() -> None:
    seen = results(Outcome("a_real", ("gc",), True, (Finding("gc", 0.2),), 0.25), Outcome("a_made", (), False))
    unseen = results(Outcome("b_real", ("gc",), True, (Finding("sync", 0.2),), 0.25))
    text = page({"patients": seen, "held-out": unseen})
    first, second = text.split("## Patients that the rules were developed on")
    assert "b_real" in first
    assert "0 of 1 (0%)" in first
    assert "a_real" not in first
    assert "Measured on x86_64, 2 cores, torch 2." in second
    assert "### Real" in second
    assert "| a_made  | healthy | nothing |" in second.split("### Synthetic")[1]


def test_without_results_it_says_so() -> None:
    assert "The clinic has not been run yet." in page({})


def test_the_page_is_fresh() -> None:
    assert main(["--check"]) == 0
