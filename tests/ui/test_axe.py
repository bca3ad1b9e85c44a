"""No view of a page breaks a rule of axe, light or dark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lostflops
from tests.ui.made_run import recorded_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.map(
  (one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 200)).join(" | ")}`)"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("axe")
    with lostflops.open(recorded_run(folder)) as run:
        run.page(folder / "page.html")
    return folder / "page.html"


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: run npm ci in ui/")
@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (1440, "light"),
        (390, "dark"),
        pytest.param(1440, "dark", marks=pytest.mark.slow),
        pytest.param(390, "light", marks=pytest.mark.slow),
    ],
)
def test_no_view_breaks_a_rule(browser: Browser, file: Path, theme: Any, width: int) -> None:
    # The page's own policy would not let the checker run.
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, bypass_csp=True)
    tab = context.new_page()
    tab.goto(file.as_uri())
    tab.locator("html[data-ready=yes]").wait_for(state="attached")
    tab.get_by_role("button", name="Show me").first.click()
    tab.locator(".summed").wait_for()
    for article in tab.locator("article").all():
        article.scroll_into_view_if_needed()
    tab.evaluate(AXE.read_text("utf-8"))
    assert tab.evaluate(RUN) == []
    context.close()
