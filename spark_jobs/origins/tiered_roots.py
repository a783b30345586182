"""Telling the root of a tiered storage from a log directory, without the client of an object store."""

from __future__ import annotations

from moldau.storage.files.port import FileSystem
from moldau.storage.tiered.layout import CLUSTER_MANIFEST


def is_tiered_storage(fs: FileSystem, directory: str) -> bool:
    """Whether a directory is the root of a tiered storage, and not a log directory."""
    return fs.exists(f"{directory}/{CLUSTER_MANIFEST}")
