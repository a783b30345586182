"""Admission: the listeners that share one set of connection limits, and what a change means for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.connection_quota import ConnectionLimits, ConnectionQuotas

if TYPE_CHECKING:
    from broker.network.listener import Listener


class Admission:
    """Of a broker, or of a controller."""

    def __init__(self, limits: ConnectionLimits, listener_names: tuple[str, ...], protected: str | None) -> None:
        self.quotas = ConnectionQuotas(limits, listener_names, protected)
        self.listeners: list[Listener] = []

    def set_limits(self, limits: ConnectionLimits) -> None:
        """The settings changed."""
        self.quotas.set_limits(limits)
        self.room_made()

    def room_made(self) -> None:
        """A connection ended or a limit moved: end those in excess, let those in who waited."""
        self.end_excess()
        for listener in self.listeners:
            listener.go_on()

    def end_excess(self) -> None:
        """Brings the number of connections down to `max.connections`."""
        excess = self.quotas.excess()
        if not excess:
            return
        excess -= sum(connection.is_closed for listener in self.listeners for connection in listener.connections)
        losers = [listener for listener in self.listeners if self.quotas.may_lose(listener.name)]
        while excess > 0 and any(listener.close_one_in_excess() for listener in losers):
            excess -= 1
