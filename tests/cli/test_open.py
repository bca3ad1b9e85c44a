"""`lostflops open` and `lostflops report --html`: what is written where, what is opened, what is said."""

import json
import webbrowser
from pathlib import Path
from typing import Any

import pytest
from tests.cli.mini_traces import BUSY, CALM, make_run

from lostflops.cli.verbs.open import default_file
from lostflops.show.pages.page import trust


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("golden"), BUSY, CALM)


@pytest.fixture(autouse=True)
def one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lostflops.show.pages.page.QUESTIONS", {"quality": trust})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that a browser was given, on a machine with a display."""
    found: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda url: found.append(url) or True)
    return found


def test_the_page_is_written_into_the_run_and_opened(lostflops: Any, golden: Path, opened: list[str]) -> None:
    outcome = lostflops("open", golden, "--json")
    file = golden / "report.html"
    said = json.loads(outcome.out)
    assert (said["file"], said["bytes"], said["notes"]) == (str(file), file.stat().st_size, [])
    assert opened == [file.resolve().as_uri()]
    assert file.read_text("utf-8").startswith("<!doctype html>")
    assert lostflops("info", golden).code == 0


@pytest.mark.parametrize("name", ["report.html", ".report.html.part"])
def test_a_link_in_a_run_of_strangers_is_not_written_through(
    lostflops: Any, golden: Path, tmp_path: Path, name: str
) -> None:
    own = tmp_path / "of-the-user"
    own.write_text("mine")
    (golden / name).unlink(missing_ok=True)
    (golden / name).symlink_to(own)
    assert lostflops("open", golden, "--no-browser").code == 0
    assert own.read_text() == "mine"
    assert (golden / "report.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_run_that_is_read_only_is_shown_from_elsewhere(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_file(golden) == golden / "report.html"
    monkeypatch.setattr("os.access", lambda *_: False)
    elsewhere = default_file(golden)
    assert elsewhere.name == f"{golden.name}.html"
    assert golden not in elsewhere.parents
    elsewhere.parent.rmdir()


def test_nothing_is_opened_without_a_display_or_when_told_so(
    lostflops: Any, golden: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert "No browser found" not in lostflops("open", golden, "--out", page, "--no-browser").out
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert "No browser found" in lostflops("open", golden, "--out", page).out
    assert opened == []


def test_report_replaces_a_page_and_says_its_size(lostflops: Any, golden: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    said = json.loads(lostflops("report", golden, "--html", page, "--json").out)
    assert said["bytes"] == page.stat().st_size > 1_000
    assert (said["file"], said["schema"]) == (str(page), "lostflops.page_file/1")


@pytest.mark.parametrize("words", [("--rank", "0"), ("--by", "rank"), ("--md",), ("--no-findings",)])
def test_a_page_is_of_the_whole_run(lostflops: Any, golden: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    outcome = lostflops("report", golden, "--html", tmp_path / "page.html", *words)
    assert outcome.code == 2
    assert "a page shows the whole run" in outcome.err
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_said_before_anything_is_asked(lostflops: Any, golden: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.html"
    kept.write_text("kept")
    assert lostflops("report", golden, "--html", tmp_path).code == 2
    assert lostflops("report", golden, "--html", tmp_path / "no" / "page.html").code == 2
    assert lostflops("report", tmp_path / "no-run", "--html", kept).code == 5
    assert kept.read_text() == "kept"


def test_markdown_has_a_short_name(lostflops: Any, golden: Path) -> None:
    outcome = lostflops("report", golden, "--md", "--no-findings")
    assert outcome.out.startswith("## Where the time went\n")
    assert outcome.out == lostflops("report", golden, "--markdown", "--no-findings").out
