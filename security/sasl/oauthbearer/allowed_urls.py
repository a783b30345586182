"""Which addresses this node fetches keys and tokens from: those of a list, compared as they are written.

The class of CVE-2025-27817: a setting that names any URL reads files and reaches hosts behind the firewall.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

SCHEMES: Final = ("https", "http", "file")


class UrlNotAllowed(ValueError):
    """The URL is not on the list."""


class AllowedUrls:
    """A list of URLs. An empty one allows none."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._urls = frozenset(url.strip() for url in urls if url.strip())

    def check(self, url: str) -> str:
        """The URL itself. Raises `UrlNotAllowed`."""
        if url not in self._urls:
            raise UrlNotAllowed(f"{url} is not among the allowed URLs of OAUTHBEARER")
        if urlsplit(url).scheme not in SCHEMES:
            raise UrlNotAllowed(f"{url} has none of the schemes {', '.join(SCHEMES)}")
        return url
