"""Admission: the connection limits that listeners share, and the choice of connections to accept or close."""

from __future__ import annotations

from typing import Protocol

from moldau.broker.network.connection_quota import ConnectionLimits, ConnectionQuotas
from moldau.broker.network.quotas.address_rates import AddressRates


class LimitedListener(Protocol):
    """A listener whose connections count under shared limits."""

    @property
    def name(self) -> str: ...

    @property
    def closing_count(self) -> int:
        """The number of closed connections whose transports still send written bytes."""

    def go_on(self) -> None:
        """Continue to accept: a limit may allow another connection now."""

    def close_one_in_excess(self) -> bool:
        """Close a connection; False where none is left to close."""


class Admission:
    """The connection limits that several listeners share: those for brokers and clients, or those for controllers."""

    def __init__(self, limits: ConnectionLimits, listener_names: tuple[str, ...], protected: str | None) -> None:
        self.quotas = ConnectionQuotas(limits, listener_names, protected)
        self.address_rates: AddressRates | None = None
        """The quotas of addresses; None while none is set."""
        self._listeners: list[LimitedListener] = []

    def add(self, listener: LimitedListener) -> None:
        """Count the connections of a listener, too."""
        self._listeners.append(listener)

    def limit_addresses(self, rates: AddressRates | None) -> None:
        """Apply changed quotas of addresses."""
        self.address_rates = rates

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Apply changed limits: close the connections in excess, accept those that waited."""
        self.quotas.set_limits(limits)
        self.room_made()

    def room_made(self) -> None:
        """Close the connections in excess and accept those that waited, after a connection ended or a limit changed."""
        self.end_excess()
        for listener in self._listeners:
            listener.go_on()

    def end_excess(self) -> None:
        """Close connections until there are at most `max.connections`."""
        excess = self.quotas.excess()
        if not excess:
            return
        excess -= sum(listener.closing_count for listener in self._listeners)
        losers = [listener for listener in self._listeners if self.quotas.may_lose(listener.name)]
        while excess > 0 and any(listener.close_one_in_excess() for listener in losers):
            excess -= 1
