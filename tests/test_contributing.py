"""The walk-throughs of CONTRIBUTING.md, done literally in a copy of the repository: files are written, lines added and
commands run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEFT = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "node_modules", "demo-run", "dist")


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    files: tuple[str, ...]
    """That the text before it names: where a block goes."""


WALKS = {
    "an analysis in ten minutes": ({"python": 3, "diff": 11, "sh": 3}, "cli.md", "lostflops syncs"),
    "a what-if change": ({"python": 2, "diff": 3, "sh": 1}, "changes.md", "copies=0.5x"),
    "a rule": ({"python": 2, "diff": 4, "sh": 1}, "rules.md", "\n## `zeroing`\n"),
    "a trace format": ({"python": 2, "diff": 4, "sh": 1}, "", ""),
}
"""How many blocks each has, and what it puts on which page of the reference."""


def blocks(title: str) -> list[Block]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walk = re.split(r"^## (?!\[)", text.split(f"\n## Add {title}\n")[1], flags=re.MULTILINE)[0]
    found, files = [], ()
    for part in re.split(r"(^```\w+\n.*?^```$)", walk, flags=re.MULTILINE | re.DOTALL):
        if fence := re.fullmatch(r"```(\w+)\n(.*?)```", part, re.DOTALL):
            found.append(Block(fence[1], fence[2], files))
        elif named := tuple(re.findall(r"`([\w./]+\.(?:py|md))`", part)):
            files = named
    return found


def add_lines(copy: Path, block: Block) -> None:
    """To the one of the named files that has the lines around it, and has them once."""
    lines = block.body.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] != mark) for mark in "+-")
    places = [copy / name for name in block.files if before in (copy / name).read_text(encoding="utf-8")]
    assert len(places) == 1, f"{len(places)} of {block.files} have the lines around\n{block.body}"
    text = places[0].read_text(encoding="utf-8")
    assert text.count(before) == 1, f"several places of {places[0].name} have\n{before}"
    places[0].write_text(text.replace(before, after), encoding="utf-8")


def type_in(copy: Path, commands: str, programs: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PATH": f"{programs}:{os.environ['PATH']}"}
    environment["PYTEST_ADDOPTS"] = "-p no:cacheprovider"
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, commands + done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """`python`, `lostflops` and `lint-imports` of a newcomer's environment, into which the copy is installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, words in (("python", ""), ("lostflops", "-m lostflops")):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (folder / name).chmod(0o755)
    contracts = Path(sys.executable).parent / "lint-imports"
    if not contracts.exists():
        pytest.skip("import-linter is not installed")
    (folder / "lint-imports").symlink_to(contracts)
    return folder


def test_every_walk_through_is_done() -> None:
    titles = re.findall(r"^## Add (a.*)$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(titles) == set(WALKS)


@pytest.mark.slow
@pytest.mark.parametrize("title", WALKS)
def test_the_walk_through_works_as_it_stands(tmp_path: Path, programs: Path, title: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=LEFT)
    done: Counter[str] = Counter()
    for block in blocks(title):
        done[block.language] += 1
        if block.language == "sh":
            type_in(copy, block.body, programs)
        elif block.language == "diff":
            add_lines(copy, block)
        else:
            new = copy / block.files[-1]
            assert not new.exists(), f"{block.files[-1]} is in the product already: walk through another question"
            new.write_text(block.body, encoding="utf-8")
    counts, page, text = WALKS[title]
    assert done == counts
    assert text in (copy / "docs" / "reference" / page).read_text(encoding="utf-8") if page else True
