"""The headline of a page in at most fifteen words, and the note that explains waits in a report."""

from __future__ import annotations

import re
from itertools import product

import pytest

from lostflops.core.estimate import Estimate, Strength
from lostflops.core.results import Finding
from lostflops.explain.advise.rules import RULES
from lostflops.explain.advise.summary import MOST_WORDS, headline

CAUSES = [rule.cause for rule in RULES]
SURE = Estimate.measured(0.21, 0.14, "steps")
ZERO = Estimate.measured(0.15, 0.2, "steps")
BOUND = Estimate.bound(0.21, "its time")
LONG = "Ranks spend a very large part of all of their time " * 5 + "in the loop."
TEXTS = (
    LONG,
    "Rank 3 is slow: its kernels take 1.50x as long as those of its peers, in 40 of 40 steps.",
    "Gradients are reduced after the backward pass, and nothing computes meanwhile. " + LONG,
    "It waits.",
    "word " * (MOST_WORDS - 4) + "end.",
    "word " * MOST_WORDS + "end.",
    "a" * 500,
)
RANKS = ((), (3,), tuple(range(10_000)))


def finding(cause: str, what: str, saving: Estimate | None, ranks: tuple[int, ...] = ()) -> Finding:
    sure = saving is None or saving.is_gain
    level, doubt = ("found", "") if sure else ("suspected", "It may be zero.")
    costs = {"lost_ns": 9, "lost_share": 0.2, "rank_hours": 1.0, "usd": None}
    return Finding(
        id=cause, level=level, cause=cause, what=what, **costs, ranks=ranks, evidence=(), strength=Strength.STRONG,
        probability=None, certain_if="it goes", fix="less of it", lines={"compute": 9}, saving=saving, doubt=doubt,
    )  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_fits_into_fifteen_words(cause: str) -> None:
    for what, saving, ranks in product(TEXTS, (SURE, ZERO, BOUND), RANKS):
        said = headline([finding(cause, what, saving, ranks)], 0.5)
        assert len(said.split()) <= MOST_WORDS == 15, said
        percent = "35%" if saving is ZERO else "21%"
        assert re.search(rf": fixing it .*{percent}", said), said
        assert said.endswith(".")


def test_it_is_the_first_clause_where_that_is_short() -> None:
    slow = "Rank 3 is slow: its kernels take 1.50x as long."
    assert headline([finding("straggler", slow, SURE, (3,))], 0.5) == "Rank 3 is slow: fixing it saves 21%."
    assert headline([finding("straggler", LONG, SURE, (3, 4))], 0.5) == "Straggler on 2 ranks: fixing it saves 21%."
    assert headline([finding("host_bound", LONG, SURE)], 0.5) == "Host bound: fixing it saves 21%."


def test_a_saving_that_may_be_zero_or_is_a_limit_is_said_to_be() -> None:
    assert (
        headline([finding("gc", "It waits.", ZERO)], 0.5)
        == "It waits: fixing it may save at most 35%, perhaps nothing."
    )
    assert headline([finding("gc", "It waits.", BOUND)], 0.5) == "It waits: fixing it saves at most 21%."


def test_a_cause_that_costs_no_time_is_not_the_headline() -> None:
    free = finding("memory_growth", "Memory grows.", None)
    assert headline([free, finding("gc", "It waits.", SURE)], 0.5) == "It waits: fixing it saves 21%."
    assert headline([free], 0.54) == "No cause of lost time was found; compute takes 54% of the time."


def test_without_findings_it_says_how_much_is_compute_where_that_is_known() -> None:
    assert headline((), 0.54) == "No cause of lost time was found; compute takes 54% of the time."
    assert headline((), None) == "No cause of lost time was found; no steps were recorded in detail."
