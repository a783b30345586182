"""The APIs of this server: one table, and one handler for each API."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def lazy_modules(package: str) -> Callable[[str], ModuleType]:
    """The `__getattr__` of a package whose modules are imported when they are first used, so that an idle node holds
    none of them. It raises AttributeError where there is no module of the given name.
    """

    def module(name: str) -> ModuleType:
        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as missing:
            if missing.name != f"{package}.{name}":
                raise
            raise AttributeError(name) from None

    return module
