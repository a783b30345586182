"""The limits on connections: in total, for each listener, for each address, and on new connections a second.

Brokers and controllers each count their own connections. Before a connection is accepted:

    condition                                                otherwise the connection waits
    its listener has less than its own max.connections       until one of the listener's connections ends
    all listeners together have less than max.connections,   until one of the connections ends
    or this is the inter-broker listener and not the only one
    the creation rate of its listener allows it, and that    until the rates allow it; they are looked at again
    of the node, or this is the inter-broker listener and    after `WAIT_MS_MAX` at the latest
    not the only one

A client that waits stays in the kernel's accept queue. An accepted connection above the limit of its address is closed
at once. There may be more connections than `max.connections`, because the limit was lowered or because brokers
connected. Then a connection without recent traffic is closed; if every connection has some, the oldest is closed.

The quota of new connections per second from one address (KIP-612) is applied later: a connection above it is accepted,
but its requests are not answered. It is closed when the rate of its address has fallen to the limit, after one window
at most. So a client that reconnects at once is slowed down, without delaying other clients.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

from moldau.protocol.late_tuple import NamedTuple
from moldau.security.quotas.limits import QuotaLimits
from moldau.security.quotas.sampled_rate import QuotaWindows, SampledRate, throttle_ms

if TYPE_CHECKING:
    from moldau.broker.config.config import Config

log = logging.getLogger("moldau.listener")

BURST_S: Final = 10
"""A burst may have as many new connections as the rate allows in this time (seconds)."""
WAIT_MS_MAX: Final = 1000
"""The maximum time (ms) for which one connection waits because of a rate."""
UNLIMITED: Final = 2**31 - 1
ADDRESSES_MAX: Final = 10_000
"""The maximum number of addresses whose rates are kept. Beyond it, the rate that was recorded the longest ago is
dropped.
"""


class CreationRate:
    """The limit on the average number of new connections a second.

    DIVERGES: Apache Kafka counts in eleven windows of one second. After a burst of ten seconds' worth it accepts one
    connection a second until the windows with the burst have expired. Here the allowance for a burst refills evenly;
    the average rate is the same.
    """

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self._burst = max(per_second * BURST_S, 1)
        self._left = float(self._burst)
        self._at_ms: int | None = None

    def wait_ms(self, now_ms: int) -> int:
        """The time (ms) until the next connection is allowed, at most `WAIT_MS_MAX`; 0 if it is allowed now."""
        if self.per_second >= UNLIMITED:
            return 0
        if self._at_ms is not None:
            elapsed_ms = now_ms - self._at_ms
            self._left = min(self._burst, self._left + max(elapsed_ms, 0) * max(self.per_second, 1) / 1000)
        self._at_ms = now_ms
        return 0 if self._left >= 1 else min(int((1 - self._left) * 1000 / max(self.per_second, 1)) + 1, WAIT_MS_MAX)

    def spend(self) -> None:
        """Count one new connection."""
        self._left -= 1


class ConnectionLimits(NamedTuple):
    """The connection limits of the settings: for all connections, for each address and for single listeners. Rates are
    new connections a second. `of_address` lists only addresses with a limit of their own, and the fields about
    single listeners list only listeners with one.
    """

    count_max: int = UNLIMITED
    creation_rate: int = UNLIMITED
    per_address_max: int = UNLIMITED
    of_address: tuple[tuple[str, int], ...] = ()
    count_max_of_listener: tuple[tuple[str, int], ...] = ()
    creation_rate_of_listener: tuple[tuple[str, int], ...] = ()


def connection_limits(config: Config) -> ConnectionLimits:
    """The connection limits of a configuration.

    DIVERGES: Apache Kafka resolves host names in `max.connections.per.ip.overrides`; here they are addresses.
    """
    overrides = []
    for entry in filter(None, config.text("max.connections.per.ip.overrides").split(",")):
        host, _, count = entry.strip().rpartition(":")
        overrides.append((host.strip().strip("[]"), int(count)))
    return ConnectionLimits(
        config.integer("max.connections"),
        config.integer("max.connection.creation.rate"),
        config.integer("max.connections.per.ip"),
        tuple(overrides),
        _of_listeners(config, "max.connections"),
        _of_listeners(config, "max.connection.creation.rate"),
    )


def _of_listeners(config: Config, name: str) -> tuple[tuple[str, int], ...]:
    spelled = ((each.name, f"listener.name.{each.name.lower()}.{name}") for each in config.listeners)
    return tuple((listener, config.integer(own)) for listener, own in spelled if config.settings.is_set(own))


class ConnectionQuotas:
    """Counts connections, and decides whether the limits allow another one. `protected` is the name of the inter-broker
    listener. If there are other listeners, `max.connections` and `max.connection.creation.rate` of the node do not hold
    for it, so that clients cannot use up its connections.
    """

    def __init__(self, limits: ConnectionLimits, listeners: tuple[str, ...], protected: str | None) -> None:
        self.count = 0
        self.count_of_listener: dict[str, int] = dict.fromkeys(listeners, 0)
        self.count_of_address: dict[str, int] = {}
        """The number of open connections by client address."""
        self._protected = protected if len(listeners) > 1 else None
        self._rate = CreationRate(UNLIMITED)
        self._rate_of_listener: dict[str, CreationRate] = {}
        self.set_limits(limits)

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Apply new limits. They take effect with the next connection. The state of a rate whose limit is unchanged is
        kept.
        """
        self._limits = limits
        self._of_address = dict(limits.of_address)
        self._count_max_of_listener = dict(limits.count_max_of_listener)
        if self._rate.per_second != limits.creation_rate:
            self._rate = CreationRate(limits.creation_rate)
        known = self._rate_of_listener
        self._rate_of_listener = {
            name: known[name] if name in known and known[name].per_second == rate else CreationRate(rate)
            for name, rate in limits.creation_rate_of_listener
        }

    def wait_ms(self, listener: str, now_ms: int) -> int | None:
        """The time (ms) until a listener may accept its next connection: 0 if it may now, None if it must wait for the
        end of another connection.
        """
        if self.count_of_listener[listener] >= self._count_max_of_listener.get(listener, UNLIMITED):
            return None
        if self.count >= self._limits.count_max and listener != self._protected:
            return None
        return max((rate.wait_ms(now_ms) for rate in self._rates_for(listener)), default=0)

    def accepted(self, listener: str) -> None:
        """Count an accepted connection in the creation rates, even if it is closed at once."""
        for rate in self._rates_for(listener):
            rate.spend()

    def _rates_for(self, listener: str) -> list[CreationRate]:
        """The creation rates that hold for a listener."""
        rates = [] if listener == self._protected else [self._rate]
        if listener in self._rate_of_listener:
            rates.append(self._rate_of_listener[listener])
        return rates

    def is_full(self, address: str) -> bool:
        """Whether one more connection from an address would exceed the limit of that address."""
        return self.count_of_address.get(address, 0) >= self._of_address.get(address, self._limits.per_address_max)

    def begun(self, listener: str, address: str) -> None:
        self.count += 1
        self.count_of_listener[listener] += 1
        self.count_of_address[address] = self.count_of_address.get(address, 0) + 1

    def ended(self, listener: str, address: str) -> None:
        self.count -= 1
        self.count_of_listener[listener] -= 1
        left = self.count_of_address.pop(address) - 1
        if left:
            self.count_of_address[address] = left

    def excess(self) -> int:
        """The number of connections above `max.connections`; 0 if there are not more."""
        return max(self.count - self._limits.count_max, 0)

    def may_lose(self, listener: str) -> bool:
        """Whether connections of this listener may be closed when there are more than `max.connections`."""
        return listener != self._protected


class AddressRates:
    """The rates of new connections from each address that has a quota (KIP-612)."""

    def __init__(self, limits: QuotaLimits, windows: QuotaWindows) -> None:
        self._limits = limits
        self._windows = windows
        self._rates: dict[str, SampledRate] = {}
        """The rates by address. The rate that was recorded the longest ago is first."""

    @property
    def rates(self) -> Iterator[tuple[str, SampledRate]]:
        """The rates of all addresses that have a quota, for metrics."""
        return iter(tuple(self._rates.items()))

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Count an accepted connection, unless it must be closed. Returns the time (ms) after which it is closed; 0 if
        it may stay.
        """
        limit = self._limits.limit_of_address(address)
        if limit is None:
            return 0
        known = self._rates.pop(address, None)
        if known is None:
            if len(self._rates) >= ADDRESSES_MAX:
                del self._rates[next(iter(self._rates))]
            known = SampledRate(self._windows)
        self._rates[address] = known
        known.record(1, now_ms)
        delay_ms = throttle_ms(known, limit, now_ms, self._windows.size_ms)
        if delay_ms > 0:
            known.record(-1, now_ms)
        return delay_ms


class LimitedListener(Protocol):
    """A listener whose connections count towards limits that it shares with other listeners."""

    @property
    def name(self) -> str: ...

    @property
    def closing_count(self) -> int:
        """The number of connections that will end: those that `close_in_excess` closes, and closed ones whose
        transports still send written bytes.
        """

    def resume_accepting(self) -> None:
        """Continue to accept connections, because a limit may allow another one now."""

    def close_in_excess(self, count: int) -> int:
        """Close up to `count` connections: some now, the rest in the next event loop iterations. Returns how many will
        be closed.
        """


class SharedConnectionLimits:
    """The connection limits that several listeners share: all listeners of the broker, or all of the controller."""

    def __init__(self, limits: ConnectionLimits, listener_names: tuple[str, ...], protected: str | None) -> None:
        self.quotas = ConnectionQuotas(limits, listener_names, protected)
        self.address_rates: AddressRates | None = None
        """The rates of the addresses that have a quota; None if no address has one."""
        self._listeners: list[LimitedListener] = []

    def add(self, listener: LimitedListener) -> None:
        """Add a listener whose connections these limits apply to."""
        self._listeners.append(listener)

    def limit_addresses(self, rates: AddressRates | None) -> None:
        """Apply the quotas of addresses; None if no address has one."""
        self.address_rates = rates

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Apply changed limits: close the connections above `max.connections`, and accept waiting ones that are allowed
        now.
        """
        self.quotas.set_limits(limits)
        self.room_made()

    def room_made(self) -> None:
        """Close the connections above `max.connections`, and accept waiting ones that are allowed now. Called after a
        connection has ended or a limit has changed.
        """
        self.close_excess()
        for listener in self._listeners:
            listener.resume_accepting()

    def close_excess(self) -> None:
        """Close connections until there are at most `max.connections`."""
        excess = self.quotas.excess()
        if not excess:
            return
        excess -= sum(listener.closing_count for listener in self._listeners)
        for listener in self._listeners:
            if excess > 0 and self.quotas.may_lose(listener.name):
                excess -= listener.close_in_excess(excess)
