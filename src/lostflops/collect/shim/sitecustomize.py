"""The first sitecustomize on the path of a recorded command: it runs the user's own, and waits for torch.

Every Python process of the command runs this at its start, so it imports next to nothing.
"""

import importlib
import os
import sys
import time
from typing import Any


def _load_lostflops(package: str) -> None:
    """Import the package that this file belongs to, without making anything else there importable."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(
        "lostflops", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["lostflops"] = module
    spec.loader.exec_module(module)


def _attach(package: str, began: int) -> None:
    try:
        if "lostflops" not in sys.modules:
            _load_lostflops(package)
        from lostflops.collect import current

        current.import_began = began
        from lostflops.collect.attach import attach

        attach()
    except Exception as error:  # noqa: BLE001 - training goes on, whatever becomes of the recording
        if os.environ.get("LOSTFLOPS_DEBUG"):
            print(f"lostflops: not recording: {error!r}", file=sys.stderr)


class _TorchFinder:
    """An import finder that starts the collector after `import torch`; it finds nothing itself.

    Programs ask whether torch is installed long before they import it, so the finder stays until torch is imported.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._is_asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch" or path is not None or self._is_asking:
            return None
        self._is_asking = True
        try:
            finders = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
            spec = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        finally:
            self._is_asking = False
        if spec is not None:
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type):
            return

        def exec_module(module: Any) -> None:
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            began = time.time_ns()
            execute(module)
            _attach(self._package, began)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            return


def _give_way(here: str) -> None:
    """Run the sitecustomize that would have been found without us; its errors are its own."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


_HERE = os.path.dirname(os.path.abspath(__file__))
if os.environ.get("LOSTFLOPS_COLLECT"):
    sys.meta_path.insert(0, _TorchFinder(os.path.dirname(os.path.dirname(_HERE))))
_give_way(_HERE)
