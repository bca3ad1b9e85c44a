"""The lines that a peer's own documentation asks for, put into a copy of a script. Nothing is started here.

Both need to know where a step is: in the scripts of the clinic, that is the innermost block of the loop in `main`
that calls `step`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

HOLDERS: Final = {"train.py": "training."}
"""What holds `model` and `optimizer` in a script where they are no names of `main`."""


def with_traceml(source: str, holder: str = "") -> str:
    """As in the README of traceml-ai, "Plain PyTorch example": `init`, and a step in `trace_step`."""
    tree = ast.parse(source)
    block, _ = _step(tree)
    traced = ast.parse(f"with traceml.trace_step({holder}model): pass").body[0]
    assert isinstance(traced, ast.With)
    traced.body = list(block)
    block[:] = [traced]
    main = _main(tree)
    main.body[:0] = ast.parse('traceml.init(mode="auto")').body
    return _imported(tree, "import traceml_ai as traceml")


def with_pytscope(source: str, holder: str = "", *, ranks: int = 2) -> str:
    """As in the README of pytscope, "Automatic": an `AutoProfiler` around a loop that stays as it is."""
    tree = ast.parse(source)
    _, loop = _step(tree)
    around = next(block for block in _blocks(tree) if loop in block)
    place = around.index(loop)
    words = f'"pytscope", {holder}model, {holder}optimizer, warmup=10' + (", distributed=True" if ranks > 1 else "")
    around[place + 1 : place + 1] = ast.parse("prof.finish()").body
    around[place:place] = ast.parse(f"prof = AutoProfiler({words})\nprof.start()").body
    return _imported(tree, "from pytscope.auto import AutoProfiler")


def _main(tree: ast.Module) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main")


def _step(tree: ast.Module) -> tuple[list[ast.stmt], ast.For]:
    """The block of a step, and the loop."""
    loops = [node for node in ast.walk(_main(tree)) if isinstance(node, ast.For) and _calls_step(node)]
    if len(loops) != 1:
        raise ValueError(f"{len(loops)} loops in main() call step")
    return min((block for block in _blocks(loops[0]) if any(map(_calls_step, block))), key=_length), loops[0]


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block


def _length(block: list[ast.stmt]) -> int:
    return (block[-1].end_lineno or 0) - block[0].lineno


def _calls_step(tree: ast.AST) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Attribute) and called.attr == "step" for called in calls)


def _imported(tree: ast.Module, line: str) -> str:
    last = max(place for place, node in enumerate(tree.body) if isinstance(node, ast.Import | ast.ImportFrom))
    tree.body[last + 1 : last + 1] = ast.parse(line).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
