"""The address of a tiered storage, and the settings for its connections. The value is pickled into the tasks."""

from __future__ import annotations

from typing import NamedTuple


class StoreAddress(NamedTuple):
    """The address and settings of a tiered storage, with the meaning of a broker's settings `moldau.tiered.storage`,
    `.endpoint`, `.region` and `.timeout.ms`.
    """

    url: str
    """An absolute path of a directory, or the URL of an object store."""
    endpoint: str | None = None
    region: str | None = None
    timeout_ms: int = 30_000

    def __str__(self) -> str:
        return self.url
