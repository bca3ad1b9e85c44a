"""Packages that can be called: `lostflops.ingest(...)` and `lostflops.doctor()`.

An attribute of `lostflops` cannot be a function and a package of the same name.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(package: str) -> None:
    """Let a call of this package be a call of the function in `lostflops.api` that has its name."""

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(import_module("lostflops.api"), package.rpartition(".")[2])(*arguments, **options)

    sys.modules[package].__class__ = CallablePackage
