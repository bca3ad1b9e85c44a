"""Words that readers stumble over are in no text that a person reads: output, help, docs, the page."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "lostflops"

BANNED = {
    r"\b(tell|tells|told|telling)\b": "show, report, record, say",
    r"\b(stands|stand|stood) (in|on|for|beside|there|out|alone|as|at|still|with|between|under|after|before)\b": "is",
    r"\blies\b|\blie (in|on|at|between|within|above|below|beyond)\b": "is, are",
    r"\b(is|are|was|were|has|have) none\b|\bnone of ours\b|\bthere is none\b": "not a ..., no ...",
    r"\banew\b|\bonce more\b": "again",
    r"\bbehind (--|a flag|it\b|them\b)": "after",
    r"\bmended?\b|\bmends\b|\bcured?\b": "fixed",
    r"\bwhat it takes\b|\btakes? so long\b|\btakes? as long\b": "duration, time",
    r"\breckon": "compute, use",
    r"\bbeyond the (cohort|others?|peers)\b|\bcohorts?\b": "more than its peers",
    r"\bon no line\b": "no fit",
    r"\bpassed (around|on)\b": "shared",
    r"\bworth typing\b": "to run next",
    r"\bwhose memory\b": "what is using the memory",
    r"\bcertain if\b": "to confirm",
    r"\bby the way it is written\b|\bto the letter\b": "exactly as documented",
    r"\bnobody\b": "not recorded, unknown, no process",
    r"\bnine times of ten\b|\bnine of ten times\b|\b90% (interval|from|to|range)\b": "range",
    r"\bstands? out\b": "was found",
    r"\blooked for\b": "checked",
    r"\b(likened|dealt|evened|remembered)\b": "compared, divided, made equal, stored",
    r"\ball along\b": "in all steps",
    r"\bquicker\b": "faster",
}


def _texts_of_code(path: Path) -> Iterator[tuple[int, str]]:
    """Yield string literals with a space in them, and docstrings of what users call."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = _docstrings(tree)
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()
        if is_text and (id(node) not in hidden or _is_public(path)):
            yield node.lineno, node.value


def _docstrings(tree: ast.Module) -> set[int]:
    """Return the ids of nodes that are docstrings, of fields too."""
    found = set()
    for node in ast.walk(tree):
        for child in getattr(node, "body", None) or () if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                found.add(id(child.value))
    return found


def _is_public(path: Path) -> bool:
    """Return whether docstrings of a file are help texts or the documented API."""
    inside = path.relative_to(SOURCE)
    return inside.parts[0] == "cli" or str(inside) in ("__init__.py", "api.py", "results.py")


_FENCE = re.compile(r"^(```|~~~)")


def _texts_of_page(path: Path) -> Iterator[tuple[int, str]]:
    """Yield lines outside of code; output of the program is checked where it is written."""
    is_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if _FENCE.match(line.strip()):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`", "", line)


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for line, text in _texts_of_code(path):
            yield f"{path.relative_to(ROOT)}:{line}", text
    for path in sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]):
        for line, text in _texts_of_page(path):
            yield f"{path.relative_to(ROOT)}:{line}", text
    for path in sorted((ROOT / "ui" / "src").rglob("*.ts*")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            code = re.sub(r"(^|\s)(//|\*|/\*).*", "", line)
            for text in re.findall(r"\"[^\"]* [^\"]*\"|`[^`]* [^`]*`|>[^<>{}]* [^<>{}]*<", code):
                yield f"{path.relative_to(ROOT)}:{number}", text


def found() -> list[str]:
    """Return each use of a banned word, with its place and what to write instead."""
    return [
        f"{place}: {match.group(0)!r} -> {instead}: {text.strip()[:100]!r}"
        for place, text in _texts()
        for pattern, instead in BANNED.items()
        if (match := re.search(pattern, text, re.IGNORECASE))
    ]


def test_no_text_uses_a_banned_word() -> None:
    uses = found()
    assert not uses, f"{len(uses)} uses:\n" + "\n".join(uses)


@pytest.mark.parametrize("text", ["as it is told", "It lies in rank 2", "certain if rank 4", "nobody recorded it"])
def test_the_list_recognises_its_words(text: str) -> None:
    assert any(re.search(pattern, text, re.IGNORECASE) for pattern in BANNED)
