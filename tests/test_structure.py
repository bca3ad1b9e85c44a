"""The shape of the code: no circles of imports, one meaning for each name of a class, old import paths."""

import ast
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import grimp
import pytest

import lostflops
from lostflops._moved import MOVED


def test_no_modules_import_each_other_not_even_for_types() -> None:
    graph = grimp.build_graph("lostflops", exclude_type_checking_imports=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert "lostflops.store.run" in imports["lostflops.predict.graph.critical"], "imports for types are not seen"
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def test_a_class_name_has_one_meaning() -> None:
    files = Path(lostflops.__file__).parent.rglob("*.py")
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    names["LostflopsCallback"] -= 1  # each framework has one, and users import it by this name
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("old", sorted(MOVED))
def test_an_old_path_warns_and_has_what_the_new_one_has(old: str) -> None:
    for name in [name for name in sys.modules if name == old or name.startswith(f"{old}.")]:
        del sys.modules[name]
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {MOVED[old]}"):
        module = import_module(old)
    new = import_module(MOVED[old])
    assert new.__spec__ is not None
    assert new.__spec__.name == MOVED[old]
    names = [name for name in vars(new) if not name.startswith("_")]
    assert all(getattr(module, name) is getattr(new, name) for name in names)


def test_what_an_old_package_holds_is_found_too() -> None:
    old, new = (f"from lostflops.{package}.report import report" for package in ("analyze", "explain.analyze"))
    program = f"{old} as old; {new}; print(old is report)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_calibration_starts_by_its_old_path() -> None:
    words = [sys.executable, "-W", "ignore", "-m", "lostflops.calibrate", "--help"]
    assert "--out" in subprocess.run(words, capture_output=True, text=True, check=True).stdout
