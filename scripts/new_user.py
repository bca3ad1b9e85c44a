"""A new user's way from an empty environment to a gate, typed from the hints that lostflops prints, and timed.

    python scripts/new_user.py            # makes the environment: the wheel of this checkout, and torch
    python scripts/new_user.py --bin DIR  # an environment that has both
    python scripts/new_user.py --short    # without the demo and the page, as CI does it

Each command is one that an earlier one printed behind "Next:" or "Or:"; where no hint leads on, this fails. The user
knows three things that no hint can: what the training script is called, that its loader is slow, and how it is mended.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "examples" / "ddp_transformer.py"
TORCH = "torch==2.13.0"
NEW_RUN = "mended"

LONG = (
    ("demo", "doctor"),
    ("run", "demo"),
    ("diagnose", "run"),
    ("whatif", "diagnose"),
    ("open", "whatif"),
    ("mend", ""),
    ("diff", "open"),
    ("gate", "diff"),
    ("score", "whatif"),
)
"""A verb, and the one whose hint leads to it; at `mend` the program is mended and recorded again."""
SHORT = (
    ("run", "doctor"),
    ("diagnose", "run"),
    ("whatif", "diagnose"),
    ("mend", ""),
    ("score", "whatif"),
    ("diff", "score"),
    ("gate", "diff"),
)

SAYS = {
    "doctor": "Steps can be recorded",
    "demo": "8 ranks on 2 hosts",
    "run": "2 ranks on 1 host",
    "diagnose": "input_pipeline",
    "whatif": "data=",
    "open": "one HTML file that opens in any browser",
    "diff": "faster",
    "gate": "PASSED",
    "score": "Predicted",
}
"""What an answer holds if it is right: the loader is what is wrong with the job, and was mended."""


class Walk:
    def __init__(self, folder: Path, bin_folder: Path, steps: int) -> None:
        self.folder, self.bin = folder, bin_folder
        self.train = [str(SCRIPT), "--steps", str(steps)]
        self.launch: list[str] = []
        self.hints: dict[str, list[list[str]]] = {}
        self.seconds: list[tuple[str, float]] = []

    def follow(self, verb: str, before: str) -> None:
        """Type the hint of an earlier verb."""
        found = [words for words in self.hints[before] if words[1] == verb]
        if not found:
            sys.exit(f"{before} leads to {[words[1] for words in self.hints[before]]}, not to {verb}")
        words = [NEW_RUN if word == "NEW_RUN" else word for word in found[0]]
        if words[-1] == "train.py":
            self.launch = words[2:-1]
            words[-1:] = [*self.train, "--slow-loader", "200"]
        self.type(verb, words)

    def mend(self) -> None:
        """The loader is fast now: record as before, into a run of another name."""
        self.type("run", ["lostflops", "run", "--out", NEW_RUN, *self.launch, *self.train])

    def type(self, verb: str, words: list[str]) -> None:
        print(f"\n$ {shlex.join(words)}", flush=True)
        started = time.monotonic()
        done = subprocess.run(
            words, cwd=self.folder, env=self._environment(), capture_output=True, text=True, check=False
        )
        self.seconds.append((verb, time.monotonic() - started))
        told = done.stdout + done.stderr
        print(told if done.returncode else "\n".join(told.splitlines()[:3]), flush=True)
        if done.returncode:
            sys.exit(f"{verb} ended with {done.returncode}")
        if SAYS[verb] not in " ".join(told.split()):
            sys.exit(f"{told}\n{verb} does not say {SAYS[verb]!r}")
        hints = re.findall(r"^(?:Next|Or): (lostflops .*)$", told, re.MULTILINE)
        self.hints[verb] = [shlex.split(hint) for hint in hints]
        print("\n".join(f"  -> {hint}" for hint in hints), flush=True)

    def _environment(self) -> dict[str, str]:
        shows = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
        kept = {name: value for name, value in os.environ.items() if name not in shows}
        return {**kept, "PATH": f"{self.bin}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "HOME": str(self.folder)}


def installed(folder: Path) -> tuple[Path, float]:
    """A fresh environment with the wheel and torch, and what installing took; building the wheel is not its time."""
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([ROOT / "scripts" / "build", folder / "dist"], env=environment, check=True)
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    pip = [folder / "env" / "bin" / "python", "-m", "pip", "install", "--quiet"]
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run([*pip, wheel], check=True)
    subprocess.run([*pip, TORCH], check=True)
    return folder / "env" / "bin", time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, metavar="DIR", help="where lostflops and torchrun are")
    parser.add_argument("--short", action="store_true", help="without the demo and the page")
    parser.add_argument("--steps", type=int, default=30, help="of the training job")
    asked = parser.parse_args()
    with TemporaryDirectory() as made:
        folder = Path(made)
        bin_folder, seconds = (asked.bin.absolute(), None) if asked.bin else installed(folder)
        (folder / "work").mkdir()
        walk = Walk(folder / "work", bin_folder, asked.steps)
        if seconds:
            walk.seconds.append(("install", seconds))
        walk.type("doctor", ["lostflops", "doctor"])
        for verb, before in SHORT if asked.short else LONG:
            if verb == "mend":
                walk.mend()
            else:
                walk.follow(verb, before)
    print(f"\n{'step':<10} seconds")
    for verb, seconds in walk.seconds:
        print(f"{verb:<10} {seconds:7.1f}")
    print(f"{'all':<10} {sum(seconds for _, seconds in walk.seconds):7.1f}")


if __name__ == "__main__":
    main()
