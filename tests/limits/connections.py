"""Limits of connections: how many, of one address, how fast, how idle, and descriptors for them."""

from __future__ import annotations

import contextlib
import socket
import time

from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.limits.stage import HONEST, Stage

BROKER_RESOURCE = 4
OTHER = "127.0.0.2"


def connections_in_all(stage: Stage) -> None:
    """Who comes when there are max.connections waits, and is served when one ends."""
    most = 20
    clients = [stage.connect() for _ in range(most - 2)]  # two are the honest ones
    stage.check(all(map(stage.is_answered, clients)), "below the limit somebody is not answered")
    late = stage.connect()
    with contextlib.suppress(TimeoutError):
        stage.is_answered(late)
        stage.check(False, "one more is answered at once")
    stage.check(stage.metric("moldau_accept_blocked") == 1, "moldau_accept_blocked is not 1")
    clients.pop().close()
    stage.check(late.recv(4) != b"", "the one that waited is not answered")
    for each in clients[:2]:
        each.close()
    stage.eventually("nobody waits", lambda: stage.metric("moldau_accept_blocked") == 0)
    stage.check(stage.metric("moldau_accept_blocked_seconds_total") > 0.5, "the time is not counted")


def connections_of_an_address(stage: Stage) -> None:
    """Beyond max.connections.per.ip they are closed at once; others of that address stay."""
    clients = [stage.connect(OTHER) for _ in range(5)]
    stage.check(all(map(stage.is_answered, clients)), "below the limit somebody is not answered")
    stage.check(not stage.is_answered(stage.connect(OTHER)), "the sixth is answered")
    stage.check(stage.metric("moldau_connections_refused_total") == 1, "the refusal is not counted")
    stage.check(all(map(stage.is_answered, clients)), "those before it suffer")
    clients.pop().close()
    stage.eventually("there is room for another", lambda: stage.is_answered(stage.connect(OTHER)))


def connections_a_second(stage: Stage) -> None:
    """Accepting waits; nobody is disconnected."""
    wanted = AlterableConfig(name="max.connection.creation.rate", config_operation=0, value="5")
    resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="", configs=[wanted])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = stage.client.ask(request, IncrementalAlterConfigsResponse, 1).responses[0]
    stage.check(answer.error_code == 0, answer.error_message)
    time.sleep(0.5)
    began = time.monotonic()
    clients = [stage.connect() for _ in range(65)]
    for each in clients:
        each.settimeout(15)
    stage.check(all(map(stage.is_answered, clients)), "somebody is disconnected")
    took_s = time.monotonic() - began
    stage.check(1.0 < took_s < 15, f"65 connections at 5 a second, 50 of them at once, took {took_s:.1f} s")
    stage.check(stage.metric("moldau_accept_blocked_seconds_total") > 0.5, "the time is not counted")


def idle_connections(stage: Stage) -> None:
    """Closed after one to two times connections.max.idle.ms; who asks stays."""
    idle = stage.connect()
    stage.check(stage.is_answered(idle), "it is not answered")
    stage.eventually("the idle one is closed", lambda: stage.is_closed(idle), 5)
    stage.check(stage.metric("kafka_network_socketserver_expiredconnectionskilledcount") >= 1, "it is not counted")


def descriptors(stage: Stage) -> None:
    """If they run out nobody is accepted for a second; files keep theirs, and all recovers."""
    clients = [stage.connect() for _ in range(220)]
    stage.eventually("accepting fails", lambda: stage.metric("moldau_accept_failures_total") > 0)
    stage.check(stage.create("another", 4) == 0, "a topic cannot be made without descriptors for clients")
    for each in clients:
        each.close()

    def again() -> bool:
        with contextlib.suppress(TimeoutError):
            return stage.is_answered(stage.connect())
        return False

    stage.eventually("somebody is accepted again", again)
    stage.check(stage.metric("process_max_fds") < 300, "the process has more than it was given")


def request_size(stage: Stage) -> None:
    """A size past socket.request.max.bytes closes the connection when it is read; one below is waited for."""
    for claimed in (200_001, 0x7FFFFFFF, -1, 0):
        hostile = stage.connect()
        hostile.sendall(claimed.to_bytes(4, "big", signed=True) + bytes(100))
        stage.check(stage.is_closed(hostile), f"a request of {claimed} bytes is waited for")
    below = stage.connect()
    below.sendall((200_000).to_bytes(4, "big") + bytes(100))
    below.settimeout(0.2)
    stage.check(not stage.is_closed(below), "a request of just the limit is refused")
    stage.check(stage.metric("moldau_malformed_requests_total") == 4, "they are not counted")


def a_flood(stage: Stage) -> None:
    """A thousand connections that hang up at once: lines are counted instead of told."""
    for _ in range(1000):
        with socket.create_connection(("127.0.0.1", stage.port)) as hostile:
            hostile.sendall(b"\x7f\xff\xff\xff")
    stage.eventually("all are counted", lambda: stage.metric("moldau_malformed_requests_total") > 990)
    lines = stage.node.log.read_text(errors="replace").count("\n")
    stage.check(lines < 400, f"{lines} lines in the log")
    stage.check(len(stage.fetch(HONEST)) > 0, "records cannot be read")
