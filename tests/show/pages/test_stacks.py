"""A page's flame graph is bounded, and its lines last what they last."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lostflops.core.results import Stacks
from lostflops.show.pages.stacks import limit_stacks

STACKS = st.dictionaries(
    st.tuples(st.sampled_from(("compute", "idle.python")), st.sampled_from("abcdefgh")),
    st.tuples(st.integers(0, 9), st.integers(1, 10**9)),
)


@given(STACKS, st.integers(0, 20))
def test_lines_last_as_long_with_few_stacks_as_with_all(
    made: dict[tuple[str, ...], tuple[int, int]], most: int
) -> None:
    stacks = Stacks("stacks", "", tuple((frames, *sums) for frames, sums in made.items()), {})
    found = limit_stacks(stacks, most)
    assert _by_line(found) == _by_line(stacks)
    kept = [item for item in found.items if item in stacks.items]
    assert sum(len(frames) for frames, _, _ in kept) <= most
    left_out = [ns for _, _, ns in set(stacks.items) - set(kept)]
    assert not kept or not left_out or min(ns for _, _, ns in kept) >= max(left_out)


def _by_line(stacks: Stacks) -> tuple[Counter[str], Counter[str]]:
    seen, times = Counter[str](), Counter[str]()
    for frames, samples, ns in stacks.items:
        seen[frames[0]] += samples
        times[frames[0]] += ns
    return seen, times
