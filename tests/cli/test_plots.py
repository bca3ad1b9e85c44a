"""A plot is SVG, so a verb refuses a file of another name before it computes anything."""

from __future__ import annotations

from pathlib import Path

import pytest

VERBS = (
    ("collectives", "--ranks", "8", "--topology", "dgx-h100", "--plot"),
    ("calibrate", "--show", "calibration.json", "--plot"),
    ("scale", "run", "--ranks", "16", "--plot"),
    ("whatif", "run", "--tune", "bucket_mb", "--plot"),
    ("devices", "run", "--prices", "prices.toml", "--plot"),
    ("flame", "run", "--out"),
)


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_another_name_is_refused(lostflops, tmp_path: Path, words: tuple[str, ...]) -> None:
    """No verb gets as far as its input, which does not exist."""
    outcome = lostflops(*words, tmp_path / "plot.png")
    assert (outcome.code, outcome.out) == (2, "")
    assert f"writes SVG: name the file {tmp_path / 'plot.svg'}" in outcome.err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_a_missing_folder_is_refused(lostflops, tmp_path: Path, words: tuple[str, ...]) -> None:
    outcome = lostflops(*words, tmp_path / "nowhere" / "plot.svg")
    assert (outcome.code, outcome.out) == (2, "")
    assert f"there is no folder {tmp_path / 'nowhere'}" in outcome.err.replace("\n", " ")


def test_folded_stacks_can_have_any_name(lostflops, tmp_path: Path) -> None:
    outcome = lostflops("flame", tmp_path / "run", "--collapsed", "--out", tmp_path / "stacks.txt")
    assert outcome.code != 0
    assert "SVG" not in outcome.err
