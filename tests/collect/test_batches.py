"""Samples and tokens that a batch shows."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

torch = pytest.importorskip("torch")

from lostflops.collect.batches import batch_size  # noqa: E402


def test_batches_of_every_shape() -> None:
    ids = torch.zeros(4, 128, dtype=torch.long)
    assert batch_size({"labels": torch.zeros(4), "input_ids": ids}) == (4, 512)
    assert batch_size((ids, ids)) == (4, 512)
    assert batch_size([torch.zeros(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)]) == (8, None)
    assert batch_size(torch.zeros(16, 10)) == (16, None)
    assert batch_size((torch.zeros(16, dtype=torch.long), torch.zeros(16, 2))) == (16, None)
    assert batch_size({"image": {"pixels": torch.zeros(2, 5)}}) == (2, None)


def test_what_shows_nothing_is_not_guessed() -> None:
    for batch in (None, "text", 3, [], {}, ["a", "b"], torch.tensor(1.0), object()):
        assert batch_size(batch) == (None, None)


def test_a_batch_of_the_users_own_type_is_left_alone() -> None:
    class Lazy(Mapping[str, object]):
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

        __getitem__ = __iter__ = __len__ = __getattr__  # type: ignore[assignment]

    assert batch_size(Lazy()) == (None, None)
