"""Packages whose modules are imported when they are first used: an idle node holds none of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def lazy_modules(package: str) -> Callable[[str], ModuleType]:
    """The `__getattr__` of a package: it imports the module of the given name, and raises AttributeError where there is
    none.
    """

    def module(name: str) -> ModuleType:
        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as missing:
            if missing.name != f"{package}.{name}":
                raise
            raise AttributeError(name) from None

    return module
