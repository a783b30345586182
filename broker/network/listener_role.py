"""The role of a listener: which APIs are served behind it."""

from __future__ import annotations

from enum import Flag, auto


class ListenerRole(Flag):
    """A listener serves brokers and clients, or controllers; an API is served behind the one, the other or both."""

    BROKER = auto()
    CONTROLLER = auto()
    BOTH = BROKER | CONTROLLER
