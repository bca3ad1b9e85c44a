"""Print the tests that a change may affect: of each changed module its doctests, and the tests that import it or a
module that imports it.

    python scripts/affected.py           # what is not committed
    python scripts/affected.py main      # what differs from a commit

It is a choice, not a proof: verbs load the engine when they run, so a whole run of `scripts/check` comes before a push.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parent.parent
ALWAYS: Final = ("tests/test_structure.py", "tests/test_words.py", "tests/test_public_api.py")
PAGES: Final = ("tests/test_docs.py", "tests/test_readme.py", "tests/test_words.py")


def changed_files(base: str) -> list[Path]:
    """Return files that differ from a commit, those not known to git included, without deleted ones."""
    known = _git("diff", "--name-only", "--diff-filter=d", base, "--")
    new = _git("ls-files", "--others", "--exclude-standard")
    return sorted({ROOT / name for name in (*known, *new)})


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def imported_names(path: Path) -> set[str]:
    """Return every module that a file may import, packages and `from` names included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def affected_tests(changed: Iterable[Path]) -> list[str]:
    """Return what to give to pytest."""
    graph = grimp.build_graph("lostflops", cache_dir=None)
    tests = {path: imported_names(path) for path in (ROOT / "tests").rglob("*.py")}
    chosen = set(ALWAYS)
    for path in changed:
        name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        if path.suffix == ".md":
            chosen |= set(PAGES)
        elif name.startswith("src.lostflops"):
            module = name.removeprefix("src.").removesuffix(".__init__")
            users = graph.find_modules_that_directly_import(module) if module in graph.modules else set()
            chosen |= {str(path.relative_to(ROOT)), *_users(tests, {module, *users} - {"lostflops"})}
        elif name.startswith("tests."):
            chosen |= {str(path.relative_to(ROOT))} if path.stem.startswith("test_") else set()
            chosen |= _users(tests, {name, name.removeprefix("tests.")})
    return sorted(chosen)


def _users(tests: dict[Path, set[str]], modules: set[str]) -> set[str]:
    used = (path for path, names in tests.items() if names & modules and path.stem.startswith("test_"))
    return {str(path.relative_to(ROOT)) for path in used}


if __name__ == "__main__":
    print("\n".join(affected_tests(changed_files(sys.argv[1] if len(sys.argv) > 1 else "HEAD"))))
