"""A page that misbehaves fails its test: the fixture's own check."""

from pathlib import Path

import pytest

from lostflops.core.results import Page, Pairs, Result
from lostflops.show.report.html import write_page

READY = '<script>document.documentElement.dataset.ready = "yes"; setTimeout(() => { %s }, 0)</script>'


@pytest.fixture
def made(tmp_path: Path) -> Path:
    file = tmp_path / "page.html"
    with file.open("w", encoding="utf-8") as stream:
        result = Result("made", "A made result", "All is well.", (Pairs("none", "", ()),))
        write_page(Page("made", (result,), {}), stream)
    return file


@pytest.mark.parametrize("dark", [False, True])
def test_a_page_opens_from_a_file_and_asks_for_nothing(open_page, made: Path, dark: bool) -> None:
    page = open_page(made, dark=dark)
    assert page.get_by_text("All is well.").count() == 1
    assert page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == dark


@pytest.mark.parametrize(
    ("does", "complaint"),
    [
        ("console.error('no')", "console: no"),
        ("throw Error('broken')", "error: broken"),
        ("alert('mine')", "dialog: mine"),
        ("new Image().src = 'http://127.0.0.1:9/x'", "asks: http://127.0.0.1:9/x"),
        ("new Image().src = 'other.png'", "asks: file:"),
        ("fetch('http://127.0.0.1:9/x').catch(() => {})", "asks: http://127.0.0.1:9/x"),
    ],
)
def test_what_no_page_may_do_is_heard(open_page, complaints, tmp_path: Path, does: str, complaint: str) -> None:
    file = tmp_path / "bad.html"
    file.write_text(f"<!doctype html><html><body>{READY % does}</body></html>")
    page = open_page(file)
    page.wait_for_timeout(200)
    assert any(one.startswith(complaint) for one in complaints), complaints
    complaints.clear()


def test_a_broken_policy_is_heard(open_page, complaints, made: Path) -> None:
    page = open_page(made)
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned=1\">')")
    page.wait_for_timeout(200)
    assert page.evaluate("window.pwned") is None
    assert any(one.startswith("console: policy: script-src-attr") for one in complaints), complaints
    complaints.clear()
