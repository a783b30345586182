"""The simulated network: cables, addresses and listeners of hosts, with the faults that TCP does not hide.

Inside one connection nothing is lost or reordered. If one direction between two hosts is cut, data in it waits until
the cut is healed or the connection times out. Data for a host that is down waits, too. Once the host is up again it
answers with a reset, because it does not know the connection.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random

from moldau.broker.runtime.acceptor import AcceptPolicy
from moldau.protocol.primitives import BytesLike
from moldau.testing.simulation.connection import Connection
from moldau.testing.simulation.life import NANOSECONDS, Life
from moldau.testing.simulation.loop import SimulatedLoop
from moldau.testing.simulation.receiving_end import ReceivingEnd

FIRST_EPHEMERAL_PORT = 49152
_THIS_HOST = ("localhost", "127.0.0.1", "::1")
_ANY_HOST = (None, "", "0.0.0.0", "::")


@dataclass(slots=True)
class NetworkProfile:
    """How the network behaves. The values may be changed while it runs."""

    latency_ns_min: int = 100_000
    latency_ns_max: int = 1_000_000
    loopback_ns: int = 20_000
    spike_probability: float = 0.01
    spike_ns_max: int = 40_000_000
    fragments_max: int = 3  # Every write arrives in at most this many pieces.
    separate_probability: float = 0.25  # that two pieces which are both there are read one by one
    socket_buffer_bytes: int = 256 * 1024  # Bytes of one direction that are sent and not yet read.
    retransmit_ns_max: int = 200_000_000  # The delay after a cut is healed.
    timeout_ns: int = 60 * NANOSECONDS  # The timeout of data that is not acknowledged.
    connect_timeout_ns: int = 127 * NANOSECONDS


class Node:
    """A host on the network. `up`: whether its kernel runs. `life`: the run of its process."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.up = False
        self.life: Life | None = None
        self.listeners: dict[int, Listener] = {}
        self._port = FIRST_EPHEMERAL_PORT

    def next_port(self) -> int:
        self._port += 1
        return self._port


class ListenerSocket:
    """The part of a listening socket that servers use: its address."""

    def __init__(self, address: str, port: int) -> None:
        self._name = (address, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name


class Listener(asyncio.AbstractServer):
    """A port on which a host listens. As in asyncio, connections are refused until it serves."""

    def __init__(
        self,
        node: Node,
        life: Life,
        context: Context,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
        *,
        serving: bool,
        policy: AcceptPolicy | None = None,
    ) -> None:
        self.policy = policy
        self._waiting: deque[Connection] = deque()
        """The connections that have arrived and that the accept policy has not accepted yet."""
        self.node = node
        self.life = life
        self.context = context
        self.port = port
        self.factory = factory
        self._serving = serving
        self.sockets: tuple[ListenerSocket, ...] = (ListenerSocket(node.address, port),)

    def close(self) -> None:
        if self.node.listeners.get(self.port) is self:
            del self.node.listeners[self.port]
        self._serving = False
        self.sockets = ()

    def is_serving(self) -> bool:
        return self._serving and self.life.alive

    def admit(self, connection: Connection) -> None:
        """Begin a connection that has arrived, or let it wait until the accept policy accepts it."""
        if self.policy is None:
            connection.begin_serving(self.factory())
        else:
            self._waiting.append(connection)
            self._let_in(self.policy)

    # `moldau.broker.runtime.acceptor.Acceptor`

    def open(self) -> None:
        self._serving = bool(self.sockets)

    def release(self) -> None:
        assert self.policy is not None
        asyncio.get_running_loop().call_soon(self._let_in, self.policy)

    def _let_in(self, policy: AcceptPolicy) -> None:
        while self._waiting and policy.may_accept():
            connection = self._waiting.popleft()
            address = connection.get_extra_info("peername")[0]
            closing_s = policy.accepted(address)
            if closing_s is None:
                if connection.gone:
                    policy.gone(address)
                else:
                    connection.begin_serving(policy.protocol_for(address))
            elif closing_s <= 0:
                connection.abort()
            else:
                asyncio.get_running_loop().call_later(closing_s, connection.abort)

    async def start_serving(self) -> None:
        self._serving = bool(self.sockets)

    async def wait_closed(self) -> None:
        pass

    async def serve_forever(self) -> None:
        raise AssertionError("not simulated: create_server serves already")

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()


class Network:
    def __init__(self, seed: int | str, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.random = Random(f"{seed}/network")
        self.profile = NetworkProfile()
        self.nodes: dict[str, Node] = {}
        self._connections: dict[int, Connection] = {}
        self._cut: set[tuple[str, str]] = set()
        self._slow: dict[tuple[str, str], int] = {}
        self.on_sent: Callable[[ReceivingEnd, bytes], None] | None = None
        """Called with an end of a connection and data that was just sent to it."""
        self.on_written: Callable[[Connection, BytesLike], None] | None = None
        """Called with an end of a connection and data that its process writes, before the data is sent."""

    # --- faults -------------------------------------------------------------------------------------------------

    @property
    def is_divided(self) -> bool:
        return bool(self._cut)

    def cut(self, source: str, target: str) -> None:
        """Let nothing that `source` sends reach `target`, until `heal`."""
        self._cut.add((source, target))

    def partition(self, one_side: Iterable[str], other_side: Iterable[str]) -> None:
        others = list(other_side)
        for one in one_side:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def isolate(self, host: str) -> None:
        self.partition([host], [name for name in self.nodes if name != host])

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Heal the cut from `source` to `target`, or all cuts. Data that waited arrives after a retransmission."""
        if source is None or target is None:
            self._cut.clear()
        else:
            self._cut.discard((source, target))
        for connection in list(self._connections.values()):
            connection.path_changed()

    def stall(self, source: str, target: str, duration_ns: int) -> None:
        self.cut(source, target)
        self.loop.at(self.loop.now_ns + duration_ns, self.heal, source, target)

    def slow(self, source: str, target: str, factor: int) -> None:
        """Multiply the latency from `source` to `target` by a factor; 1 restores it."""
        self._slow[source, target] = factor

    def reset(self, one: str, other: str) -> int:
        """Reset every connection between two hosts. Returns the number of connections."""
        ends = [end for end in self._connections.values() if (end.node.name, end.peer.node.name) == (one, other)]
        for end in ends:
            end.lose(_error(ConnectionResetError, errno.ECONNRESET))
            end.peer.lose(_error(ConnectionResetError, errno.ECONNRESET))
        return len(ends)

    def is_cut(self, source: Node, target: Node) -> bool:
        return bool(self._cut) and (source.name, target.name) in self._cut

    # --- hosts --------------------------------------------------------------------------------------------------

    def add(self, name: str) -> Node:
        assert name not in self.nodes
        node = self.nodes[name] = Node(name, f"10.0.{len(self.nodes) // 250}.{len(self.nodes) % 250 + 1}")
        return node

    def resolve(self, name: str, here: Node) -> Node:
        if name in _THIS_HOST:
            return here
        for node in self.nodes.values():
            if name in (node.name, node.address):
                return node
        raise OSError(errno.ENOENT, f"no host is called {name}")

    def host_up(self, node: Node, life: Life) -> None:
        node.up = True
        node.life = life
        for connection in list(self._connections.values()):
            connection.path_changed()

    def host_down(self, node: Node, *, kernel_lives: bool, reset: bool) -> None:
        """End the connections of a host whose process has ended. If its kernel runs, it closes them regularly;
        otherwise it sends nothing. With `reset` the peers get a reset at once.
        """
        node.up = kernel_lives
        node.life = None
        node.listeners.clear()
        for connection in list(self._connections.values()):
            if connection.node is node:
                connection.host_died(kernel_lives=kernel_lives, reset=reset)

    def latency_ns(self, source: Node, target: Node) -> int:
        profile = self.profile
        if source is target:
            return profile.loopback_ns
        random = self.random.random
        latency = profile.latency_ns_min + int(random() * (profile.latency_ns_max - profile.latency_ns_min))
        if random() < profile.spike_probability:
            latency += int(random() * profile.spike_ns_max)
        if self._slow:
            latency *= self._slow.get((source.name, target.name), 1)
        return latency

    # --- connections --------------------------------------------------------------------------------------------

    def listen(
        self,
        node: Node,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None,
        port: int,
        *,
        serving: bool,
        policy: AcceptPolicy | None = None,
    ) -> Listener:
        names = [host] if host is None or isinstance(host, str) else list(host)
        for name in names:
            if name not in _ANY_HOST and self.resolve(str(name), node) is not node:
                raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        port = port or node.next_port()
        if port in node.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        assert node.life is not None
        listener = node.listeners[port] = Listener(
            node, node.life, copy_context(), port, factory, serving=serving, policy=policy
        )
        return listener

    async def connect(
        self, node: Node, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[Connection, asyncio.BaseProtocol]:
        target = self.resolve(host, node)
        connected: asyncio.Future[Connection] = self.loop.create_future()
        life = node.life
        assert life is not None
        deadline_ns = self.loop.now_ns + self.profile.connect_timeout_ns
        attempt = _Attempt(self, node, target, port, life, copy_context(), connected, deadline_ns)
        attempt.send()
        connection = await connected
        begun: asyncio.Future[asyncio.BaseProtocol] = self.loop.create_future()
        self.loop.post(life, connection.context, connection.begin, factory, begun)
        return connection, await begun

    def pair(self, client: tuple[Node, Life, Context], server: tuple[Node, Life, Context], port: int) -> Connection:
        """Make both ends of a new connection; neither has a protocol yet. Returns the client's end."""
        client_name = (client[0].address, client[0].next_port())
        server_name = (server[0].address, port)
        near = Connection(self, *client, client_name, server_name)
        far = Connection(self, *server, server_name, client_name)
        near.peer, far.peer = far, near
        for end in (near, far):
            end.number = self.loop.next_number()
            self._connections[end.number] = end
        return near

    def forget(self, connection: ReceivingEnd) -> None:
        """Remove a connection once both of its ends are closed."""
        if connection.gone and connection.peer.gone:
            self._connections.pop(connection.number, None)
            self._connections.pop(connection.peer.number, None)


@dataclass(slots=True)
class _Attempt:
    """An attempt to connect: SYN packets at intervals until there is an answer."""

    network: Network
    source: Node
    target: Node
    port: int
    life: Life
    context: Context
    connected: asyncio.Future[Connection]
    deadline_ns: int
    retry_ns: int = NANOSECONDS

    def send(self) -> None:
        loop = self.network.loop
        if self.connected.done() or not self.life.alive:
            return
        if loop.now_ns >= self.deadline_ns:
            self.connected.set_exception(_error(TimeoutError, errno.ETIMEDOUT))
            return
        loop.at(loop.now_ns + self.network.latency_ns(self.source, self.target), self.arrive)

    def arrive(self) -> None:
        network, loop = self.network, self.network.loop
        cut = network.is_cut(self.source, self.target) or network.is_cut(self.target, self.source)
        if not self.target.up or cut:
            loop.at(min(loop.now_ns + self.retry_ns, self.deadline_ns), self.send)
            self.retry_ns *= 2
            return
        back_ns = loop.now_ns + network.latency_ns(self.target, self.source)
        listener = self.target.listeners.get(self.port)
        if listener is None or not listener.is_serving():
            loop.at(back_ns, self.refuse)
            return
        server = (self.target, listener.life, listener.context.copy())
        client = network.pair((self.source, self.life, self.context), server, self.port)
        client.peer.not_before(back_ns)
        client.not_before(back_ns)
        loop.post(listener.life, client.peer.context, client.peer.accept, listener)
        loop.at(back_ns, self.answer, client)

    def refuse(self) -> None:
        if not self.connected.done():
            self.connected.set_exception(_error(ConnectionRefusedError, errno.ECONNREFUSED))

    def answer(self, client: Connection) -> None:
        if self.connected.done() or not self.life.alive:
            client.discard()
        else:
            self.connected.set_result(client)


def _error(kind: type[OSError], number: int) -> OSError:
    return kind(number, os.strerror(number))
