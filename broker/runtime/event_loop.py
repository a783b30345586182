"""Imports the event loop in the process of a node without importing OpenSSL.

asyncio and uvloop import `ssl` for their transports under TLS. A node has no such transport: its listeners and channels
under TLS are those of `network/tls`, over plain transports. So a node without TLS would load OpenSSL for nothing, which
takes a tenth of its memory (4.6 MB). While asyncio and uvloop are imported, an empty module replaces `ssl`. Modules
that import `ssl` afterwards get the real one.

The event loop of such a process takes no `ssl` arguments, so only `moldau serve` replaces the module. If a process has
imported asyncio or `ssl` already, nothing is replaced.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Final

MODULE: Final = "ssl"
ERROR_NUMBERS: Final = "SSL_ERROR_"
"""The prefix of the names in `ssl` that are numbers. All other names that asyncio and uvloop look up in it are classes
and functions.
"""


class AbsentTls(Exception):
    """Replaces every class of `ssl`. It has no instances, and is never raised."""


def import_event_loop() -> None:
    """Import asyncio and uvloop without importing `ssl`. Does nothing if `ssl` or asyncio was imported before."""
    if MODULE in sys.modules or "asyncio" in sys.modules:
        return
    sys.modules[MODULE] = _without_content()
    try:
        import uvloop  # noqa: F401  it imports asyncio
    finally:
        del sys.modules[MODULE]


def _without_content() -> ModuleType:
    module = ModuleType(MODULE)
    module.__dict__["__getattr__"] = lambda name: 0 if name.startswith(ERROR_NUMBERS) else AbsentTls
    return module
