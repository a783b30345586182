"""What a client of brokers says while it repeats a request, and which brokers it asks."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.tables.client import cluster
from moldau.tables.client.cluster import BrokersUnavailable, Cluster
from moldau.tables.client.connection import BrokerConnection, BrokerNotTrusted, Disconnected
from moldau.tables.client.settings import Address, client_settings_of
from tests.support.certificates import Authority


def test_brokers_that_are_not_reached_are_told_before_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RETRY_WARNING_DELAY_S", 0.0)
    settings = client_settings_of(("127.0.0.1:1",), {"kafka.request.timeout.ms": "300"})
    with (
        pytest.warns(
            UserWarning, match=r"metadata: 127.0.0.1:1: Connection refused; it is tried again for up to 0.3 s"
        ),
        pytest.raises(BrokersUnavailable, match=r"metadata: 127.0.0.1:1: Connection refused"),
    ):
        Cluster(settings).retry("metadata", lambda: Cluster(settings).any_connection())


def broken_listener(end: Callable[[socket.socket], None]) -> Address:
    """A listener that accepts one connection, waits for the client's first bytes, and ends it so."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listener.accept()
        with listener, accepted:
            accepted.recv(1 << 16)
            end(accepted)

    threading.Thread(target=serve, daemon=True).start()
    return Address("127.0.0.1", listener.getsockname()[1])


def close(accepted: socket.socket) -> None:
    accepted.shutdown(socket.SHUT_RDWR)


def reset(accepted: socket.socket) -> None:
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def answer_without_tls(accepted: socket.socket) -> None:
    accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("end", [close, reset, answer_without_tls])
def test_a_broker_that_breaks_the_tls_handshake_is_disconnected(end: Callable[[socket.socket], None]) -> None:
    address = broken_listener(end)
    with pytest.raises(Disconnected, match=f"{address}: "):
        BrokerConnection(address, client_settings_of((str(address),), {"kafka.security.protocol": "SSL"}))


def test_the_next_broker_is_asked_after_a_broken_tls_handshake() -> None:
    first, second = broken_listener(close), broken_listener(reset)
    settings = client_settings_of((str(first), str(second)), {"kafka.security.protocol": "SSL"})
    with pytest.raises(Disconnected, match=f"{second}: "):
        Cluster(settings).any_connection()


def test_a_broker_whose_certificate_is_not_trusted_is_refused(tmp_path: Path) -> None:
    ours, theirs = Authority("ours"), Authority("theirs")
    (tmp_path / "node.pem").write_text(theirs.issue("node", "127.0.0.1").pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "node.pem")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, pytest.raises(ssl.SSLError):
            context.wrap_socket(listener.accept()[0], server_side=True)

    threading.Thread(target=serve, daemon=True).start()
    given = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.ca.location": str(ours.trust_store(tmp_path / "ca.pem")),
    }
    settings = client_settings_of((f"127.0.0.1:{listener.getsockname()[1]}",), given)
    with pytest.raises(BrokerNotTrusted, match=r"its certificate is not trusted: .*issuer"):
        Cluster(settings).retry("metadata", lambda: Cluster(settings).any_connection())
