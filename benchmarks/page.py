"""How large the page of a run is, how long it takes to write, and how soon a reader can use it.

    python benchmarks/page.py RUN... --json numbers.json

Writes each run's page with `lostflops report --html`, start-up included, and opens it from its file in a headless
chromium, each time with a new profile. A page is interactive when it has drawn its first results and the main thread
has had its last task of over 50 ms before half a second of quiet. Times count from the start of the navigation. Exit
code 1 means that a target was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
from browser import started
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

ROUNDS = 5
MOST_SECONDS = 2.0
MOST_MB = {8: 5.0, 1_000: 15.0}
"""By the most ranks that it holds for."""

WATCH = """
window.measured = { ready: 0, busy: 0 };
new PerformanceObserver((list) => {
  for (const task of list.getEntries())
    window.measured.busy = Math.max(window.measured.busy, task.startTime + task.duration);
}).observe({ type: "longtask", buffered: true });
new MutationObserver((_, observer) => {
  if (document.documentElement?.dataset.ready !== "yes") return;
  window.measured.ready = performance.now();
  observer.disconnect();
}).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-ready"] });
"""


def written(run: Path, file: Path) -> dict[str, float]:
    """Seconds and peak MB of the command, and the size of what it wrote."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "lostflops", "report", str(run), "--html", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}")
    seconds = time.perf_counter() - began
    return {"write_seconds": seconds, "write_peak_mb": usage.ru_maxrss / 1024, "mb": file.stat().st_size / 1e6}


def opened(playwright: Playwright, file: Path) -> dict[str, float]:
    with started(playwright) as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(WATCH)
        page.goto(file.resolve().as_uri())
        page.locator("html[data-ready=yes] article").first.wait_for()
        before = -1.0
        while (measured := page.evaluate("window.measured"))["busy"] != before:
            before = measured["busy"]
            page.wait_for_timeout(500)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return {
        "ready_seconds": measured["ready"] / 1e3,
        "interactive_seconds": max(measured["ready"], measured["busy"]) / 1e3,
        "heap_mb": metrics["JSHeapUsedSize"] / 1e6,
        "elements": metrics["Nodes"],
    }


def measured_page(playwright: Playwright, run: Path, folder: Path, rounds: int) -> dict[str, Any]:
    file = folder / f"{run.name}.html"
    numbers: dict[str, Any] = {"run": run.name, "ranks": ranks_of(run), **written(run, file)}
    samples = [opened(playwright, file) for _ in range(rounds)]
    numbers |= {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}
    numbers["interactive_worst_seconds"] = max(sample["interactive_seconds"] for sample in samples)
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in numbers.items()}


def ranks_of(run: Path) -> int:
    command = [sys.executable, "-m", "lostflops", "info", str(run), "--json"]
    answer = subprocess.run(command, check=True, capture_output=True, env=os.environ).stdout
    return int(json.loads(answer)["contents"]["held"]["ranks"])


def missed(numbers: dict[str, Any]) -> list[str]:
    found = []
    most = next((mb for ranks, mb in MOST_MB.items() if numbers["ranks"] <= ranks), None)
    if most and numbers["mb"] > most:
        found.append(f"the page of {numbers['run']} has {numbers['mb']:.1f} MB, more than {most:g}")
    if numbers["interactive_seconds"] > MOST_SECONDS:
        seconds = numbers["interactive_seconds"]
        found.append(f"the page of {numbers['run']} is interactive after {seconds:.1f} s, more than {MOST_SECONDS:g}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        pages = [measured_page(playwright, run, Path(folder), options.rounds) for run in options.runs]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    text = json.dumps({"machine": machine, "load": round(os.getloadavg()[0], 1), "pages": pages}, indent=2)
    print(text)
    if options.json:
        options.json.write_text(f"{text}\n")
    failures = [failure for page in pages for failure in missed(page)]
    for failure in failures:
        print(f"missed: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
