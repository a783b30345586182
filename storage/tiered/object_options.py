"""The URL schemes of object stores, and the options of an object store besides its URL.

Importing this module does not import the client of object stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from moldau.protocol.late_dataclass import dataclass

FILE_SCHEME: Final = "file://"
"""The scheme that may precede the absolute path of a directory."""
S3_SCHEMES: Final = ("s3", "s3a")
SCHEMES: Final = (*S3_SCHEMES, "gs", "az", "abfs", "abfss", "azure", "adl")
"""The URL schemes of the object stores that obstore supports."""


@dataclass(frozen=True, slots=True)
class ObjectStoreOptions:
    """The options of an object store besides its URL (`moldau.tiered.storage`)."""

    endpoint: str | None = None
    """The URL of a server that is compatible with S3. A URL with http:// is used without encryption."""
    region: str | None = None
    timeout_s: float = 30.0
    """The longest time (seconds) of one request with its retries. Each part of an upload is a request."""
    retry_count: int = 2
    """The most retries of a request by obstore within one call; `RetryingStorage` repeats whole calls."""
    part_size: int = 8 << 20
    """The size (bytes) of one part of a multipart upload; at least 5 MiB."""
    parts_at_once: int = 4
    has_checksums: bool = True
    """Whether uploads to S3 carry a SHA-256 of each request, which the server compares."""
    other: Mapping[str, str] = field(default_factory=dict)
    """Further options, by obstore's own names."""
