"""The role of a listener, which determines the APIs that it serves."""

from __future__ import annotations

from enum import Flag, auto

from moldau.broker.config.config import Config


class ListenerRole(Flag):
    """Whether a listener belongs to the broker or to the controller of its node.

    An API is served by listeners of one role, or of both.
    """

    BROKER = auto()
    CONTROLLER = auto()
    BOTH = BROKER | CONTROLLER


def role_of(listener_name: str, config: Config) -> ListenerRole:
    """The role of a listener with this name."""
    return ListenerRole.CONTROLLER if listener_name in config.controller_listener_names else ListenerRole.BROKER
