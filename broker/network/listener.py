"""A listener: an address, the APIs that are served there, and the connections that clients made to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from moldau.broker.network.connection import Connection
from moldau.broker.network.connection_quota import SharedConnectionLimits
from moldau.broker.network.connection_resources import ClosingLog, ConnectionResources
from moldau.broker.network.listener_security import ListenerSecurity
from moldau.broker.network.route import ListenerRole, Route
from moldau.broker.runtime.acceptor import Acceptor
from moldau.security.access import Access
from moldau.security.principal import Principal
from moldau.security.quotas.throttling import ThrottleTimes

log = logging.getLogger("moldau.listener")

SWEPT_AT_ONCE: Final = 200
"""The number of connections that one event loop iteration checks for idle ones, or closes because there are too many:
closing one takes 20 us.
"""


class Listener:
    """A listener. `resources` are shared by all listeners of the node; `routes` are the APIs of this one.

    `heartbeats_ended` is called with the id of a broker when the connection of its heartbeats has ended.
    """

    def __init__(
        self,
        resources: ConnectionResources,
        name: str,
        host: str | None,
        port: int,
        role: ListenerRole,
        routes: Mapping[int, Route],
        admission: SharedConnectionLimits,
        heartbeats_ended: Callable[[int], None],
        security: ListenerSecurity,
        *,
        is_for_nodes: bool,
        request_size_max: int,
        idle_ms_max: int,
        send_buffer_size: int,
    ) -> None:
        self.resources = resources
        self.name = name
        self.host = host
        self.port = port
        self.role = role
        self.is_for_nodes = is_for_nodes
        self.closing_log = ClosingLog(resources.loop)
        self.request_size_max = request_size_max
        self.send_buffer_size = send_buffer_size
        self.routes = routes
        self.security = security
        self.connections: dict[Connection, None] = {}
        """The open connections in order of arrival, because the order of a set would differ in every run."""
        self.closing: set[Connection] = set()
        """The closed connections whose transports still send written bytes."""
        self._in_excess: dict[Connection, None] = {}
        """The connections that are closed in the next event loop iterations, because there are too many."""
        self.created_count = 0
        """The number of connections accepted since the start."""
        self.malformed_count = 0
        """The number of connections that ended with a request that could not be parsed."""
        self.idle_count = 0
        """The number of connections that were closed because they were idle."""
        self.refused_count = 0
        """The number of connections that were closed at once, because their address had too many."""
        self.throttled_count = 0
        """The number of connections that were closed without an answer, because too many came from their address in a
        short time.
        """
        self.throttle_times = ThrottleTimes()
        """The times for which throttled connections stayed open."""
        self.excess_count = 0
        """The number of connections that were closed because there were more than `max.connections`."""
        self.accept_failures_count = 0
        """The number of accepts that failed for lack of a descriptor or of memory."""
        self._loop = resources.loop
        self._environment = resources.environment
        self._heartbeats_ended = heartbeats_ended
        self._admission = admission
        self._quotas = admission.quotas
        self._blocked_ms = 0
        self._blocked_since_ms: int | None = None
        self._received_bytes = self._sent_bytes = 0
        """The bytes received and sent on connections that have ended."""
        self._idle_ms_max = idle_ms_max
        self._acceptor: Acceptor | None = None
        self._sweep: asyncio.Handle | None = None
        self._rate_timer: asyncio.TimerHandle | None = None
        admission.add(self)

    async def bind(self) -> None:
        """Bind the address, without accepting: clients are refused until `accept`. Raises OSError."""
        self._acceptor = await self._environment.acceptor(self, self.host, self.port)

    async def accept(self) -> None:
        """Begin to accept and serve connections."""
        assert self._acceptor is not None
        self._acceptor.open()
        self._sweep_later()

    # Called by the acceptor

    def may_accept(self) -> bool:
        now_ms = self._environment.monotonic_ms()
        wait_ms = self._quotas.wait_ms(self.name, now_ms)
        if wait_ms == 0:
            return True
        if self._blocked_since_ms is None:
            self._blocked_since_ms = now_ms
        if wait_ms is not None and self._rate_timer is None:
            self._rate_timer = self._loop.call_later(wait_ms / 1000, self._rate_allows)
        return False

    def accepted(self, address: str) -> float | None:
        rates = self._admission.address_rates
        if rates is not None:
            now_ms = self._environment.monotonic_ms()
            delay_ms = rates.throttle_ms(address, now_ms)
            if delay_ms > 0:
                self.throttled_count += 1
                self.throttle_times.record(delay_ms, now_ms)
                return delay_ms / 1000
        self._quotas.accepted(self.name)
        if self._quotas.is_full(address):
            self.refused_count += 1
            log.debug("refusing a connection from %s, which has as many as it may", address)
            return 0.0
        self._quotas.begun(self.name, address)
        self._admission.close_excess()
        return None

    def gone(self, address: str) -> None:
        self._quotas.ended(self.name, address)
        self._admission.room_made()

    def accept_failed(self) -> None:
        self.accept_failures_count += 1

    def protocol_for(self, address: str) -> asyncio.BaseProtocol:
        return self.security.protocol_for(Connection(self, address))

    @property
    def is_blocked(self) -> bool:
        """Whether a client may be waiting to be accepted because of a limit."""
        return self._blocked_since_ms is not None

    def blocked_s(self) -> float:
        """The total time (seconds) in which no client was accepted because of a limit."""
        since_ms, now_ms = self._blocked_since_ms, self._environment.monotonic_ms()
        return (self._blocked_ms + (0 if since_ms is None else now_ms - since_ms)) / 1000

    def resume_accepting(self) -> None:
        """Continue to accept connections, because a limit may allow another one now."""
        if self._blocked_since_ms is not None and self._acceptor is not None:
            now_ms = self._environment.monotonic_ms()
            if self._quotas.wait_ms(self.name, now_ms) is None:
                return
            self._blocked_ms += now_ms - self._blocked_since_ms
            self._blocked_since_ms = None
            self._acceptor.release()

    def _rate_allows(self) -> None:
        self._rate_timer = None
        self.resume_accepting()

    # Connections

    def access_of(self, principal: Principal, client_host: str) -> Access:
        return self.security.access_of(principal, client_host)

    def opened(self, connection: Connection) -> None:
        self.created_count += 1
        self.connections[connection] = None

    def closed(self, connection: Connection) -> None:
        if connection.heartbeat_broker_id >= 0:
            self._heartbeats_ended(connection.heartbeat_broker_id)
        self.malformed_count += connection.was_malformed
        self._received_bytes += connection.received_bytes
        self._sent_bytes += connection.sent_bytes
        self.closing.discard(connection)
        self._in_excess.pop(connection, None)
        if self.connections.pop(connection, connection) is None:
            self.gone(connection.client_host)

    @property
    def received_bytes(self) -> int:
        """Bytes received on all connections since the start."""
        return self._received_bytes + sum(each.received_bytes for each in self.connections)

    @property
    def sent_bytes(self) -> int:
        return self._sent_bytes + sum(each.sent_bytes for each in self.connections)

    @property
    def closing_count(self) -> int:
        """The number of connections that will end: those that `close_in_excess` closes, and closed ones whose
        transports still send written bytes.
        """
        return len(self.closing) + len(self._in_excess)

    def close_in_excess(self, count: int) -> int:
        """Close up to `count` connections: those without traffic since the last check for idle ones, then the oldest.
        Some are closed now, the rest in the next event loop iterations. Returns how many will be closed.
        """
        candidates = [each for each in self.connections if not each.is_closed and each not in self._in_excess]
        candidates.sort(key=lambda each: each.was_active)
        chosen = dict.fromkeys(candidates[:count])
        is_closing = bool(self._in_excess)
        self._in_excess |= chosen
        if not is_closing:
            self._close_some_in_excess()
        return len(chosen)

    def _close_some_in_excess(self) -> None:
        for connection in tuple(islice(self._in_excess, SWEPT_AT_ONCE)):
            del self._in_excess[connection]
            if not connection.is_closed:
                self.excess_count += 1
                connection.close("there are more connections than max.connections")
        if self._in_excess:
            self._loop.call_soon(self._close_some_in_excess)

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        for timer in (self._sweep, self._rate_timer):
            if timer is not None:
                timer.cancel()
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        for connection in tuple(self.connections):
            connection.close("the broker is stopping", logging.DEBUG)

    def _sweep_later(self) -> None:
        if self._idle_ms_max >= 0:  # A negative limit means no limit.
            self._sweep = self._loop.call_later(max(self._idle_ms_max, 1) / 1000, self._close_idle)

    def _close_idle(self) -> None:
        """Close the connections that sent nothing since the last check. They were idle for one to two times the limit.

        A connection that the last check closed, and whose transport is still open, has a peer that does not read. It is
        aborted.
        """
        self._close_idle_of(tuple(self.connections), 0)

    def _close_idle_of(self, connections: Sequence[Connection], first: int) -> None:
        """Check the connections from the index `first` on: some of them now, the rest in the next event loop
        iterations.
        """
        for connection in connections[first : first + SWEPT_AT_ONCE]:
            if connection.is_closed:
                connection.abort()
            elif connection.was_active:
                connection.was_active = False
            else:
                self.idle_count += 1
                connection.close("idle for too long", logging.DEBUG)
        first += SWEPT_AT_ONCE
        if first < len(connections):
            self._sweep = self._loop.call_soon(self._close_idle_of, connections, first)
        else:
            self._sweep_later()
