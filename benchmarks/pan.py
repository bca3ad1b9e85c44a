"""What a frame costs while somebody pans a timeline, in headless Chromium: scripting per frame, as its trace tells.

    python benchmarks/pan.py [RUN ...] [--events 1000000] [--seconds 2]

Writes a page with the timeline of each run, and one of 8 ranks with a made number of events, all of them in the file.
Opens it, unfolds four ranks where there are few, zooms in and pans with the wheel for some seconds: as fast as frames
come, to and fro. Of Chromium's trace (`devtools.timeline`) what scripts take between two frames is summed: as it went,
and as the processor gave time to the thread, which on a busy machine is less. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page as Tab
from playwright.sync_api import sync_playwright

from lostflops.account.ledger.lines import LINES
from lostflops.core.pictures import Events, Lane, Meetings, Strips
from lostflops.core.results import Page, Result
from lostflops.explain.analyze.timeline import timeline
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.report.html import write_page
from lostflops.store.run import Run

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCRIPTS = ("FunctionCall", "FireAnimationFrame", "EvaluateScript", "RunMicrotasks", "TimerFire")
FRAME = "FireAnimationFrame"
COSTS = {"scripting": "dur", "processor": "tdur"}
PAN = """async (seconds) => {
  const canvas = document.querySelector(".timeline .rows canvas");
  const box = canvas.getBoundingClientRect();
  const until = performance.now() + 1000 * seconds;
  let frames = 0;
  while (performance.now() < until) {
    const deltaX = Math.floor(frames / 30) % 2 ? -37 : 37;
    const at = { clientX: box.left + 300, clientY: box.top + 100 };
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaX, ...at, cancelable: true }));
    frames += 1;
    await new Promise(requestAnimationFrame);
  }
  return frames;
}"""


def made(events: int, ranks: int = 8, lanes: int = 4) -> Result:
    """Lanes full of events of 1 us, of which every tenth holds nine others."""
    draw = np.random.default_rng(0)
    each = events // (ranks * lanes)
    outer = (np.arange(each) % 10) == 0
    start = np.arange(each) // 10 * 10_000 + np.arange(each) % 10 * 1000 + np.where(outer, 0, 50)
    dur = np.where(outer, 9_900, draw.integers(100, 900, each))
    span = int(start[-1] + 10_000)
    count, none = each * ranks * lanes, [0] * (each * ranks * lanes)
    kept = Events(
        rows=tuple(f"rank {rank}" for rank in range(ranks)),
        lanes=tuple(Lane(rank, f"stream {lane}", each) for rank in range(ranks) for lane in range(lanes)),
        kinds=("kernel", "op", "comm"),
        names=tuple(f"kernel_{number}" for number in range(100)),
        start=np.tile(start, ranks * lanes).tolist(),
        dur=np.tile(dur, ranks * lanes).tolist(),
        kind=draw.integers(0, 3, count).tolist(),
        name=draw.integers(0, 100, count).tolist(),
        event=np.arange(count).tolist(),
        launch=none,
        wait=none,
        meetings=Meetings([], [], [], [], [], [], [], ()),
    )
    bins = 16_384
    rows = tuple((row, draw.integers(0, 6, bins, np.uint8).tobytes()) for row in kept.rows)
    return Result("timeline", "Timeline", "", (Strips("rows", "", 0, span, bins, LINES, rows, events=kept),))


def measure(tab: Tab, seconds: float) -> dict[str, Any]:
    """Scripting of each frame in ms while panning, and how many frames there were."""
    client = tab.context.new_cdp_session(tab)
    found: list[dict[str, Any]] = []
    ended: list[bool] = []
    client.on("Tracing.dataCollected", lambda part: found.extend(part["value"]))
    client.on("Tracing.tracingComplete", lambda _: ended.append(True))
    client.send("Tracing.start", {"transferMode": "ReportEvents", "categories": "devtools.timeline"})
    frames = tab.evaluate(PAN, seconds)
    client.send("Tracing.end")
    while not ended:
        tab.wait_for_timeout(50)
    told = {"frames": frames, "frames_per_s": round(frames / seconds, 1)}
    return told | {f"{name}_ms": spread(list(per_frame(found, key))) for name, key in COSTS.items()}


def spread(costs: list[float]) -> dict[str, float]:
    low, high = np.quantile(costs, (0.5, 0.95)).tolist()
    return {"median": round(low, 2), "p95": round(high, 2), "most": round(max(costs), 2)}


def per_frame(found: list[dict[str, Any]], key: str) -> Iterator[float]:
    """Scripting from each animation frame to the next on their thread; what is inside another counts once."""
    thread = next(one["tid"] for one in found if one["name"] == FRAME)
    own = sorted(
        (one for one in found if one["tid"] == thread and one["name"] in SCRIPTS and "dur" in one),
        key=lambda one: (one["ts"], -one["dur"]),
    )
    reach, cost, begun = 0.0, 0.0, False
    for one in own:
        if one["ts"] < reach:
            continue
        if one["name"] == FRAME and begun:
            yield cost / 1000
            cost = 0.0
        begun = begun or one["name"] == FRAME
        reach = one["ts"] + one["dur"]
        cost += one.get(key, 0.0) if begun else 0.0


def panned(result: Result, name: str, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "page.html"
        with file.open("w") as stream:
            write_page(Page(name, (result,), GLOSSARY, ()), stream)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        begun = time.perf_counter()
        tab.goto(file.as_uri())
        canvas = tab.locator(".timeline .rows canvas").first
        canvas.wait_for()
        tab.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        opened = time.perf_counter() - begun
        strips = result.blocks[0]
        assert isinstance(strips, Strips)
        assert strips.events is not None
        answer = {
            "run": name,
            "ranks": len(strips.rows),
            "events": len(strips.events.start),
            "bytes": file.stat().st_size,
        }
        answer |= {"opened_s": round(opened, 2), "whole": measure(tab, seconds)}
        canvas.focus()
        for _ in range(4):
            tab.keyboard.press("w")
        answer["zoomed"] = measure(tab, seconds)
        for _ in range(4):
            tab.keyboard.press("Enter")
            tab.keyboard.press("ArrowDown")
        answer["four ranks unfolded"] = measure(tab, seconds)
        tab.keyboard.press("0")
        answer["four ranks unfolded, whole time"] = measure(tab, seconds)
        browser.close()
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    for path in options.runs:
        with Run.open(path) as run:
            result = timeline(run)
        print(json.dumps(panned(result, path.name, options.seconds), indent=2))
    if options.events:
        print(json.dumps(panned(made(options.events), "made", options.seconds), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
