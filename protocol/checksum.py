"""CRC-32C (Castagnoli), the checksum of record batches and of producer snapshots."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TypeAlias

from moldau.protocol.primitives import BytesLike

Crc32c: TypeAlias = Callable[[BytesLike, int], int]


def load_crc32c() -> Crc32c:
    """The C function of the `crc32c` package: (data, value so far) -> checksum. It reads any buffer in place.

    The package's own `__init__` asks `importlib.metadata` for a version string, which costs 30 ms and 4 MB at start.
    Only the extension module is needed, so it is loaded without the package; a package with another layout is imported
    whole.
    """
    package = PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations is not None:
        extension = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            function: Crc32c = module.crc32c
            return function
    from crc32c import crc32c as imported

    return imported


crc32c: Crc32c = load_crc32c()
