"""What the source of a module says that no object of it holds: constants with their meaning, texts, what it uses."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

LONGEST = 40
"""Characters of a text that still is a threshold, and not a pattern or a query."""


class Constant(NamedTuple):
    """A constant of a module, and the sentence below it that says what it means."""

    name: str
    value: str
    meaning: str


class Source:
    """A module, as it is written."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.tree = ast.parse(inspect.getsource(module))
        self._functions = {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)}

    def constants(self) -> Iterator[Constant]:
        """Yield numbers and short texts that have a sentence of their own; longer values are code, not thresholds."""
        for node, below in zip(self.tree.body, self.tree.body[1:], strict=False):
            match node, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as meaning)):
                    value = getattr(self.module, name)
                    if isinstance(value, int | float) or (isinstance(value, str) and len(value) < LONGEST):
                        yield Constant(name.lstrip("_"), _plain(value), " ".join(meaning.split()))

    def calls(self, name: str) -> list[ast.Call]:
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        return [node for node in found if ast.unparse(node.func) == name]

    def texts(self, node: ast.expr | None) -> list[str]:
        """What an expression can be, where it is text; what is only known of a run is an ellipsis."""
        match node:
            case ast.Constant(value=str() as text):
                return [text]
            case ast.JoinedStr():
                return [_template(node)]
            case ast.IfExp():
                return [*self.texts(node.body), *self.texts(node.orelse)]
            case ast.Name(id=name) if isinstance(getattr(self.module, name, None), str):
                return [getattr(self.module, name)]
            case ast.Name(id=name):
                given = [one for one in ast.walk(self.tree) if isinstance(one, ast.Assign)]
                named = [one.value for one in given if ast.unparse(one.targets[0]) == name]
                return [text for value in named if not isinstance(value, ast.Name) for text in self.texts(value)]
            case ast.Call(func=ast.Name(id=name)) if name in self._functions:
                return self._returned(self._functions[name])
            case _:
                return []

    def _returned(self, function: ast.FunctionDef) -> list[str]:
        """What a function returns, or the parts it puts that together from."""
        inside = list(ast.walk(function))
        whole = [text for one in inside if isinstance(one, ast.Return) for text in self.texts(one.value)]
        appended = [one.args[0] for one in inside if isinstance(one, ast.Call) and _is_append(one)]
        return whole or [text for part in appended for text in self.texts(part)]

    def compared(self) -> set[str]:
        """Texts that something is compared with."""
        found = [one for node in ast.walk(self.tree) if isinstance(node, ast.Compare) for one in node.comparators]
        return {one.value for one in found if isinstance(one, ast.Constant) and isinstance(one.value, str)}

    def imported(self, package: str) -> Iterator[object]:
        """What is imported from within a package: modules, functions, classes and values."""
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
                yield from (getattr(self.module, name.asname or name.name) for name in node.names)

    def modules_of(self, package: str) -> list[str]:
        """Names of the modules of a package that this one imports from, in their order."""
        found = []
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == package:
                found += [f"{package}.{name.name}" for name in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
                found.append(str(node.module))
        return found

    def written(self, package: str) -> str:
        """Its own source, and that of what it imports from a package."""
        parts = [inspect.getsource(self.module)]
        for thing in self.imported(package):
            is_code = inspect.isfunction(thing) or inspect.isclass(thing) or inspect.ismodule(thing)
            parts.append(inspect.getsource(thing) if is_code else repr(thing))
        return "\n".join(parts)


def _is_append(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "append"


def _template(node: ast.JoinedStr) -> str:
    parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
    return re.sub(r"…+", "…", "".join(str(part) for part in parts))


def _plain(value: object) -> str:
    match value:
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3g}"
        case tuple():
            return ", ".join(_plain(one) for one in value)
        case dict():
            return ", ".join(f"{_plain(key)}: {_plain(one)}" for key, one in value.items())
        case re.Pattern():
            return str(value.pattern)
        case _:
            return str(value)
