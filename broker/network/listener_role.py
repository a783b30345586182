"""The role of a listener, which determines the APIs that it serves."""

from __future__ import annotations

from enum import Flag, auto


class ListenerRole(Flag):
    """The role: a listener serves brokers and clients, or controllers.

    An API is served by one role, the other or both.
    """

    BROKER = auto()
    CONTROLLER = auto()
    BOTH = BROKER | CONTROLLER
