"""Figures in the docs are those of the results that are kept beside their benchmarks."""

from __future__ import annotations

from importlib import import_module

import pytest

MARKED = ("batch_sizes", "diff", "memory_whatif", "recomputation")


@pytest.mark.parametrize("name", [*MARKED, "memory", "peers"])
def test_a_page_is_that_of_its_results(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_module(f"benchmarks.{name}.render").main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", MARKED)
def test_a_stale_page_is_told_and_mended(name: str, tmp_path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    renderer = import_module(f"benchmarks.{name}.render")
    fresh = renderer.PAGE.read_text(encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(fresh.replace("| ", "| 1", 1) + "more")
    monkeypatch.setattr("benchmarks.generated.ROOT", tmp_path)
    monkeypatch.setattr(renderer, "PAGE", page)
    assert renderer.main(["--check"]) == 1
    assert f"page.md: stale, run python -m benchmarks.{name}.render" in capsys.readouterr().out
    assert renderer.main([]) == 0
    assert page.read_text().endswith(fresh[-200:])
