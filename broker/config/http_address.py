"""The address of the HTTP listener, read from http://host:port."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_ADDRESS: Final = r"http://(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]*):([0-9]{1,5})/?"


class HttpAddress(NamedTuple):
    """The address of the HTTP listener. An empty host stands for all interfaces."""

    host: str
    port: int


def read_address(text: str) -> HttpAddress | None:
    """Parse http://host:port; None for any other text."""
    match = re.fullmatch(_ADDRESS, text.strip())
    if match is None or int(match[2]) > 65535:
        return None
    return HttpAddress(match[1].strip("[]"), int(match[2]))
