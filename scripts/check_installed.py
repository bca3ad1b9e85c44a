"""Fails unless this environment holds lostflops with its web UI, its six dependencies, what these need, and nothing
else."""

import re
import subprocess
import sys
import tempfile
from contextlib import chdir
from importlib.metadata import distribution, distributions
from importlib.resources import files
from pathlib import Path

DIRECT = {"duckdb", "isal", "msgspec", "numpy", "rich", "scipy", "typer"}
TOOLS = {"pip", "setuptools", "wheel"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(name: str, installed: set[str]) -> set[str]:
    """Requirements of a distribution on this machine; one for another platform or extra is not installed."""
    required = (entry for entry in distribution(name).requires or () if "extra ==" not in entry)
    return {found for entry in required if (found := normal(re.match(r"[\w.-]+", entry)[0])) in installed}


installed = {normal(entry.name) for entry in distributions()}
expected, queue = {"lostflops"}, ["lostflops"]
if (direct := needs("lostflops", installed)) != DIRECT:
    sys.exit(f"lostflops needs {sorted(direct)}, not {sorted(DIRECT)}")
while queue:
    new = needs(queue.pop(), installed) - expected
    expected |= new
    queue += new
if (extra := installed - expected - TOOLS) or "torch" in installed:
    sys.exit(f"installed without need: {sorted(extra)}")
for package, name in (("report", "app.js"), ("report", "app.css"), ("serve", "fleet.js"), ("serve", "fleet.css")):
    if not (files("lostflops.show") / package / "assets" / name).is_file():
        sys.exit(f"the web UI lacks {name}")
print(f"{len(expected)} distributions: {', '.join(sorted(expected))}")

# README's Python, on a run of the demo: nothing but the dependencies of lostflops is there.
README = Path(__file__).parents[1] / "README.md"
(snippet,) = [
    text for text in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "import lost" in text
]
with tempfile.TemporaryDirectory() as folder, chdir(folder):
    cli = [sys.executable, "-m", "lostflops", "demo", "-o", "run"]
    subprocess.run(cli, check=True, stdout=subprocess.DEVNULL)
    exec(compile(snippet, "README.md", "exec"), {})
print("README.md: its Python runs")
