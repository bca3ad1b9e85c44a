"""What is said about the common clock."""

from __future__ import annotations

from lostflops.account.align.answers import clock_notes, clock_of
from memory_run import MemoryRun


def notes(*methods: str, **known: int) -> list[str]:
    rows = [{"rank": rank, "reference": 0, "method": method, **known} for rank, method in enumerate(methods)]
    with MemoryRun(clocks=rows) as run:
        return list(clock_notes(run, clock_of(run)))


def test_what_cannot_be_told_from_a_transfer() -> None:
    (note,) = notes("reference", "collectives", uncertainty=90_000, spread=4_000)
    assert "to within 90.0 us." in note
    assert note.endswith("Waits shorter than the clock error, up to 24.0 us, count as transfer.")


def test_ends_that_coincide_are_no_0_ns_apart() -> None:
    (note,) = notes("reference", "collectives", uncertainty=90_000, spread=0)
    assert note.endswith("to within 90.0 us.")


def test_ranks_without_an_offset_and_why() -> None:
    untied, contradictory = notes("reference", "untied", "contradictory", "untied")
    assert untied.startswith("No collective aligns the clock of rank 1, 3 with that of rank 0: in their groups, the")
    assert contradictory.startswith("Collectives give contradictory offsets between the clocks of rank 2 and rank 0:")


def test_one_host() -> None:
    (note,) = notes("reference", "same host")
    assert note.startswith("All ranks share the clock of one host.")
