"""What is seen of the timeline of a page, and whether two pictures of it differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator
    from playwright.sync_api import Page as Tab

CANVAS = "#timeline .timeline .rows canvas"
MOST_MS = 60_000
"""A busy machine may need so long until a page has come to rest."""

# How many pixels of two pictures differ; pictures of other sizes differ everywhere.
DIFFERENCE = """async (pictures) => {
  const images = await Promise.all(pictures.map((picture) => {
    const bytes = Uint8Array.from(atob(picture), (letter) => letter.charCodeAt(0));
    return createImageBitmap(new Blob([bytes], { type: "image/png" }));
  }));
  const [one, other] = images.map((image) => {
    const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
    pen.drawImage(image, 0, 0);
    return pen.getImageData(0, 0, image.width, image.height);
  });
  if (one.width !== other.width || one.height !== other.height) return one.width * one.height;
  let count = 0;
  for (let at = 0; at < one.data.length; at += 4) {
    if ([0, 1, 2].some((part) => one.data[at + part] !== other.data[at + part])) count++;
  }
  return count;
}"""
# Two frames: what an event of the browser starts, such as a scroll, starts in the next one.
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
# Every result is drawn, no timeline has a frame or an address to come, and no sum of a selection is awaited.
RESTS = """() => document.documentElement.dataset.ready === "yes"
  && !document.querySelector(".blocks.waiting, .timeline[data-moving], .pane .summing")"""
TAKE = """(canvas) => canvas.toDataURL("image/png").split(",")[1]"""
SMOOTHED = 50
"""Pixels whose edges may be smoothed in another way."""


def drawn(tab: Tab) -> Locator:
    canvas = tab.locator(CANVAS)
    canvas.wait_for()
    return canvas


def settle(tab: Tab) -> None:
    """Wait until the page has painted what it shows and the address says so; the page itself reports that."""
    tab.evaluate(FRAMES)
    tab.wait_for_function(RESTS, timeout=MOST_MS)
    address = tab.evaluate("location.href")
    # The browser reports it a little later; as a text it would be a pattern.
    tab.wait_for_url(lambda url: url == address, timeout=MOST_MS)


def picture(tab: Tab) -> str:
    """The rows without pointer and keyboard, which are not part of a selection.

    As the canvas has them: a picture of the screen depends on where a page is scrolled to, and to take one of more than
    fits there, the browser makes the window taller for a moment, so that rows scroll.
    """
    drawn(tab)
    tab.mouse.move(2, 2)
    tab.evaluate("document.activeElement.blur()")
    settle(tab)
    return str(tab.locator(CANVAS).evaluate(TAKE))


def look_alike(tab: Tab, other: Tab) -> bool:
    """Return whether two timelines, and what the page says below them, are the same."""
    return difference(other, picture(tab), picture(other)) <= SMOOTHED and below(tab) == below(other)


def below(tab: Tab) -> str:
    return tab.locator("#timeline .timeline .pane").inner_text()


def show_first(tab: Tab) -> None:
    tab.locator("#overview .card").first.get_by_role("button", name="Show me").click()
    settle(tab)


def difference(tab: Tab, one: str, other: str) -> int:
    """Return how many pixels of two pictures differ."""
    return int(tab.evaluate(DIFFERENCE, [one, other]))
