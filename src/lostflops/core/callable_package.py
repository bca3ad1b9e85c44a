"""Packages that can be called: `lostflops.ingest(...)` and `lostflops.doctor()`.

An attribute of `lostflops` cannot be a function and a package of the same name.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(package: str) -> None:
    """Make a call of this package call the function of the same name in `lostflops.api`."""

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(import_module("lostflops.api"), package.rpartition(".")[2])(*arguments, **options)

    sys.modules[package].__class__ = CallablePackage
