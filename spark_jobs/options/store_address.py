"""Where a tiered storage is, and how it is reached: a small value, which travels to the tasks."""

from __future__ import annotations

from typing import NamedTuple


class StoreAddress(NamedTuple):
    """As the settings of a broker say it: `moldau.tiered.storage`, `.endpoint`, `.region` and `.timeout.ms`."""

    url: str
    """An absolute path of a directory, or the URL of an object store."""
    endpoint: str | None = None
    region: str | None = None
    timeout_ms: int = 30_000

    def __str__(self) -> str:
        return self.url
