"""A temporary file in memory, for libraries that read secrets only from a path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memory_file(contents: bytes) -> Iterator[str]:
    """Make a file with `contents`, for the time of the context, which gets its path.

    On Linux the file is on no disk and has no name. Elsewhere it is a temporary file that only its owner can read.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("moldau", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, contents)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(contents)
        file.flush()
        yield file.name
