"""The limits on connections: in total, for a listener, for an address, and on new connections a second.

Brokers and controllers each count their own connections. Before a connection is accepted:

    condition                                     where it does not hold
    listener below its own max.connections        it waits, until one of the listener ends
    all below max.connections, or this is the     it waits, until one ends
      listener between brokers of several
    creation rates of all and of the listener     it waits, a second at the most

A client that waits stays in the kernel's accept queue. An accepted connection above the limit of its address is closed
at once. Where there are more connections than `max.connections`, because it was lowered or because brokers connected,
the least used one is closed.

"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from moldau.broker.config.config import Config

log = logging.getLogger("moldau.listener")

BURST_S: Final = 10
"""The time (seconds) for which the allowance of new connections accumulates: so many may arrive in one burst."""
WAIT_MS_MAX: Final = 1000
"""The longest wait (ms) of one connection because of a rate."""
UNLIMITED: Final = 2**31 - 1


class CreationRate:
    """The rate of new connections a second, on average.

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
        """The time (ms) until the next connection is allowed."""
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
    """The limits from the settings. `listeners`: the own limits of listeners."""

    count_max: int = UNLIMITED
    creation_rate: int = UNLIMITED
    per_address_max: int = UNLIMITED
    of_address: tuple[tuple[str, int], ...] = ()
    count_max_of_listener: tuple[tuple[str, int], ...] = ()
    creation_rate_of_listener: tuple[tuple[str, int], ...] = ()


def connection_limits(config: Config) -> ConnectionLimits:
    """The limits of the configuration in force.

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
    """Counts connections. `protected` is the listener between brokers, which clients must not block."""

    def __init__(self, limits: ConnectionLimits, listeners: tuple[str, ...], protected: str | None) -> None:
        self.count = 0
        self.count_of_listener: dict[str, int] = dict.fromkeys(listeners, 0)
        self.count_of_address: dict[str, int] = {}
        """The number of connections by address, for addresses that have any."""
        self._protected = protected if len(listeners) > 1 else None
        self._rate = CreationRate(UNLIMITED)
        self._rate_of_listener: dict[str, CreationRate] = {}
        self.set_limits(limits)

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Apply limits. They take effect with the next connection; unchanged rates continue."""
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
        """The time in ms until the next connection may be accepted: 0 for now; None: when another connection ends."""
        if self.count_of_listener[listener] >= self._count_max_of_listener.get(listener, UNLIMITED):
            return None
        if self.count >= self._limits.count_max and listener != self._protected:
            return None
        rate = self._rate_of_listener.get(listener)
        return max(self._rate.wait_ms(now_ms), rate.wait_ms(now_ms) if rate is not None else 0)

    def accepted(self, listener: str) -> None:
        """Count an accepted connection, even if it is closed at once."""
        self._rate.spend()
        if listener in self._rate_of_listener:
            self._rate_of_listener[listener].spend()

    def is_full(self, address: str) -> bool:
        """Whether one more connection from this address exceeds its limit."""
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
        """The number of connections above the limit."""
        return max(self.count - self._limits.count_max, 0)

    def may_lose(self, listener: str) -> bool:
        """Whether connections of this listener may be closed when there are too many."""
        return listener != self._protected
