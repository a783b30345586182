"""The list of URLs from which this node may fetch keys and tokens, compared as text.

It prevents attacks as in CVE-2025-27817, in which a setting with an arbitrary URL reads files or reaches hosts behind
the firewall.
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
        """Return the URL if it is on the list. Raises `UrlNotAllowed`."""
        if url not in self._urls:
            raise UrlNotAllowed(f"{url} is not among the allowed URLs of OAUTHBEARER")
        if urlsplit(url).scheme not in SCHEMES:
            raise UrlNotAllowed(f"{url} has none of the schemes {', '.join(SCHEMES)}")
        return url
