"""Import paths of version 0.1 that were documented: they work for one more release, with a warning."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any, Final

MOVED: Final = {
    "lostflops.analyze": "lostflops.explain.analyze",
    "lostflops.calibrate": "lostflops.collect.calibrate",
    "lostflops.errors": "lostflops.core.errors",
    "lostflops.export": "lostflops.show.export",
    "lostflops.results": "lostflops.core.results",
    "lostflops.units": "lostflops.core.units",
}


class _OldPath:
    """Loads the module of a new path for an old one; for a package a stand-in, whose modules are looked for here."""

    def __init__(self, new: str) -> None:
        self._new = new
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._new)
        self._spec = module.__spec__
        if spec.submodule_search_locations is None:
            return module
        stand_in = ModuleType(spec.name, module.__doc__)
        stand_in.__path__ = []  # so that no file of the new package is loaded a second time
        stand_in.__dict__["__getattr__"] = lambda name: getattr(module, name)
        return stand_in

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == self._new:
            module.__spec__ = self._spec  # the import system has set that of the old path

    def is_package(self, fullname: str) -> bool:  # noqa: ARG002 - this loader has one module
        spec = find_spec(self._new)
        return spec is not None and spec.submodule_search_locations is not None

    def get_source(self, fullname: str) -> None:
        """Return nothing: whoever shows source finds it under the new path."""

    def get_code(self, fullname: str) -> CodeType | None:  # noqa: ARG002 - for `python -m`
        spec = find_spec(self._new)
        loader = spec.loader if spec is not None else None
        code: CodeType | None = getattr(loader, "get_code", lambda _: None)(self._new)
        return code


class _OldPaths:
    """Finds moved modules. It has no base class: `importlib.abc` takes as long to import as all of `lostflops`."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - a protocol
        target: ModuleType | None = None,  # noqa: ARG002 - a protocol
    ) -> ModuleSpec | None:
        old = next((old for old in MOVED if fullname == old or fullname.startswith(f"{old}.")), None)
        if old is None:
            return None
        new = MOVED[old] + fullname.removeprefix(old)
        warnings.warn(f"{fullname} has moved to {new}; the old path goes with the next release", DeprecationWarning, 2)
        loader: Any = _OldPath(new)
        return ModuleSpec(fullname, loader, is_package=loader.is_package(fullname))


def keep_old_paths() -> None:
    """Let `import` find moved modules under their old paths, after all other ways have failed."""
    if not any(isinstance(finder, _OldPaths) for finder in sys.meta_path):
        sys.meta_path.append(_OldPaths())
