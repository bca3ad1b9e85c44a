"""Mutated inputs: a readable run that says what was lost, or an error of our own tree; nothing else, and soon.

20,000 cases: pytest -m slow tests/integration/test_fuzz.py
"""

import gzip
import random

import pytest

from tests.integration import fuzz_cases, fuzz_harness


@pytest.mark.parametrize("cases", [50, pytest.param(20_000, marks=pytest.mark.slow)])
def test_mutated_inputs(cases: int) -> None:
    summary = fuzz_harness.run_cases(range(cases))
    print(summary)
    assert len(summary.results) == cases
    assert summary.failures == [], str(summary)


def test_a_case_is_its_number() -> None:
    assert [fuzz_cases.make_case(number) for number in range(50)] == [fuzz_cases.make_case(n) for n in range(50)]
    assert fuzz_cases.make_case(1, seed=1) != fuzz_cases.make_case(1, seed=2)


def test_bombs_are_bombs() -> None:
    bomb = fuzz_cases.gzip_bomb(random.Random(0), fuzz_cases.bases()["pretty"])
    assert len(gzip.decompress(bomb)) > 10 * len(bomb)
