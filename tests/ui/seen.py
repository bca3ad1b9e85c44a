"""What is seen of the timeline of a page, and whether two pictures of it differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator
    from playwright.sync_api import Page as Tab

CANVAS = "#timeline .timeline .rows canvas"
SETTLED_MS = 700
"""After this long a timeline that has come to rest is in the address."""
MOST_LOOKS = 10

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
# Whether a canvas shows anything: on a busy machine a page is there before its pictures are.
PAINTED = """(selector) => {
  const canvas = document.querySelector(selector);
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return pixels.some((pixel) => pixel !== pixels[0]);
}"""
TAKE = """async (canvas) => {
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return canvas.toDataURL("image/png").split(",")[1];
}"""
SMOOTHED = 50
"""Pixels whose edges may be smoothed in another way."""


def drawn(tab: Tab) -> Locator:
    canvas = tab.locator(CANVAS)
    canvas.wait_for()
    return canvas


def settle(tab: Tab) -> None:
    """Wait until the address has not changed for a while: on a busy machine that takes longer."""
    for _ in range(MOST_LOOKS):
        address = tab.url
        tab.wait_for_timeout(SETTLED_MS)
        if tab.url == address:
            return
    raise AssertionError("the address does not come to rest")


def picture(tab: Tab) -> str:
    """The rows without pointer and keyboard, which are not part of a selection.

    As the canvas has them: a picture of the screen depends on where a page is scrolled to, and to take one of more than
    fits there, the browser makes the window taller for a moment, so that rows scroll.
    """
    drawn(tab)
    tab.wait_for_function(PAINTED, arg=CANVAS)
    tab.mouse.move(2, 2)
    tab.evaluate("document.activeElement.blur()")
    settle(tab)
    seen = ""
    for _ in range(MOST_LOOKS):
        before, seen = seen, tab.locator(CANVAS).evaluate(TAKE)
        if seen == before:
            return seen
    raise AssertionError("the timeline does not come to rest")


def look_alike(tab: Tab, other: Tab, looks: int = 5) -> bool:
    """Return whether two timelines and what is told below them come to show the same.

    On a busy machine two pictures in a row may be equal before the last paint, so both are looked at again.
    """
    return any(
        difference(other, picture(tab), picture(other)) <= SMOOTHED and below(tab) == below(other) for _ in range(looks)
    )


def below(tab: Tab) -> str:
    return tab.locator("#timeline .timeline .pane").inner_text()


def show_first(tab: Tab) -> None:
    tab.locator("#overview .card").first.get_by_role("button", name="Show me").click()
    settle(tab)


def difference(tab: Tab, one: str, other: str) -> int:
    """Return how many pixels of two pictures differ."""
    return int(tab.evaluate(DIFFERENCE, [one, other]))
