"""Writes what verbs say about the demo's run into the pages that show it; with --check only tells what is stale.

A page shows the first lines of an output below a comment such as `<!-- says: lostflops ranks demo-run | head -20 -->`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WIDTH = 80
_SHOWN = re.compile(
    r"<!-- says: (?P<command>lostflops [^|]+?)(?: \| head -(?P<lines>\d+))? -->\n```text\n.*?```\n", re.DOTALL
)
_MAKE = """
import sys
from pathlib import Path
from lostflops.testing.demo import demo_cluster
from lostflops.ingest import ingest
from lostflops.testing import write_captured
write_captured(demo_cluster(8), Path("demo-run/capture"))
ingest(["demo-run/capture"], Path("demo-run"))
"""
_RUN = "import sys; from lostflops.cli.main import main; sys.argv[0] = 'lostflops'; main()"


class Demo:
    """The demo's run in a folder, and what verbs say about it, each asked once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: dict[str, str] = {}

    def says(self, command: str) -> str:
        if command not in self._said:
            if not (self._folder / "demo-run").exists():
                self._python(_MAKE)
            self._said[command] = self._python(_RUN, *command.split()[1:])
        return self._said[command]

    def _python(self, program: str, *arguments: str) -> str:
        own = {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
        state = {"XDG_STATE_HOME": str(self._folder / "state")}
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=self._folder,
            env=os.environ | own | state,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments) or 'making the run'}: {done.stderr}")
        return done.stdout


def filled(text: str, says: Callable[[str], str]) -> str:
    """A page with every output as it is now.

    >>> page = "<!-- says: lostflops x demo-run | head -1 -->\\n```text\\nold\\n```\\n"
    >>> print(filled(page, lambda _: "one\\ntwo\\n"), end="")
    <!-- says: lostflops x demo-run | head -1 -->
    ```text
    one
    ...
    ```
    """

    def again(found: re.Match[str]) -> str:
        lines = [line.rstrip() for line in says(found["command"]).rstrip().splitlines()]
        kept = lines[: int(found["lines"] or len(lines))]
        while kept and not kept[-1]:
            kept.pop()
        cut = ["..."] if len(kept) < len(lines) else []
        comment = found[0].partition("\n")[0]
        return "\n".join([comment, "```text", *kept, *cut, "```", ""])

    return _SHOWN.sub(again, text)


def pages() -> list[Path]:
    return [path for path in sorted(DOCS.rglob("*.md")) if "<!-- says:" in path.read_text(encoding="utf-8")]


def stale(paths: Iterable[Path], demo: Demo) -> list[tuple[Path, str]]:
    """Pages that say something else than the verbs, with what they should say."""
    fresh = [(path, filled(path.read_text(encoding="utf-8"), demo.says)) for path in paths]
    return [(path, text) for path, text in fresh if path.read_text(encoding="utf-8") != text]


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = stale(pages(), Demo(Path(folder)))
    for path, text in found:
        print(f"{path.relative_to(ROOT)}: {'stale, run scripts/outputs' if '--check' in arguments else 'written'}")
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    return 1 if found and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
