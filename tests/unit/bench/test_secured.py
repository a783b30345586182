"""Loads under TLS: the compiled loop over sessions of its own, what brokers are told, and clients that come at once."""

from __future__ import annotations

import socket
import ssl
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench import acls, handshakes, load, native_load
from bench.frames import Frames
from bench.libssl import LibSsl, TlsSuite
from bench.outcome import LoadFailed, Outcome
from bench.rows import ROWS
from bench.secured import listener_properties, make_suites
from bench.tls import workloads
from tests.conformance.brokers import Moldau
from tests.unit.bench.test_load import ERROR_POSITION, REPLY_SIZE, Peer

NATIVE = pytest.mark.skipif(native_load.compiled_loop() is None, reason="there is no C compiler")


class SecuredPeer(Peer):
    """The peer of the plain loops, under TLS."""

    def __init__(self, store: Path, turned_away: int = 0) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(store)
        self.turned_away_left = turned_away
        self.ciphers: list[str] = []
        super().__init__()

    def _serve(self, accepted: socket.socket) -> None:
        if self.turned_away_left:
            self.turned_away_left -= 1
            accepted.close()
            return
        try:
            secured = self._context.wrap_socket(accepted, server_side=True)
        except OSError:
            return
        name = secured.cipher()
        assert name is not None
        self.ciphers.append(name[0])
        super()._serve(secured)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[TlsSuite, ...], Path]:
    return make_suites(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def peer(made: tuple[tuple[TlsSuite, ...], Path]) -> Iterator[SecuredPeer]:
    with closing(SecuredPeer(made[1])) as found:
        yield found


def run(port: int, suite: TlsSuite, size: int = 16, requests: int = 200) -> Outcome:
    frame = (size).to_bytes(4, "big") + b"r" * size
    frames = [Frames(frame, 5), Frames(frame, 5)]
    return load.run_load(port, frames, in_flight=5, requests=requests, error_position=ERROR_POSITION, tls=suite)


@NATIVE
@pytest.mark.parametrize("which", [0, 1])
def test_every_request_under_tls_is_answered(
    which: int, made: tuple[tuple[TlsSuite, ...], Path], peer: SecuredPeer
) -> None:
    suite = made[0][which]
    outcome = run(peer.port, suite)
    assert len(peer.requests) == outcome.requests == len(outcome.latencies_ns) == 200
    assert outcome.received_size == 200 * (REPLY_SIZE + 4)
    assert outcome.sent_size == 200 * 20
    assert peer.ciphers == [suite.cipher] * 2


@NATIVE
def test_a_request_larger_than_the_socket_takes_leaves_as_a_whole(
    made: tuple[tuple[TlsSuite, ...], Path], peer: SecuredPeer
) -> None:
    outcome = run(peer.port, made[0][0], size=3 << 20, requests=6)
    assert outcome.sent_size == 6 * ((3 << 20) + 4)
    assert {len(each) for each in peer.requests} == {3 << 20}


@NATIVE
def test_a_certificate_of_another_authority_ends_the_load(
    made: tuple[tuple[TlsSuite, ...], Path], tmp_path: Path, peer: SecuredPeer
) -> None:
    (other, _), _ = make_suites(tmp_path)
    with pytest.raises(LoadFailed, match="handshake"):
        run(peer.port, other)


@NATIVE
def test_a_suite_that_libssl_does_not_have_is_refused(made: tuple[tuple[TlsSuite, ...], Path]) -> None:
    with pytest.raises(LoadFailed, match="no suite"):
        LibSsl(made[0][1]._replace(cipher="ROT13"))


def test_without_a_compiler_there_is_no_load_under_tls(
    made: tuple[tuple[TlsSuite, ...], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_load, "compiled_loop", lambda: None)
    with pytest.raises(LoadFailed, match="compiler"):
        run(1, made[0][0])


@pytest.mark.parametrize("which", [0, 1])
def test_clients_that_come_at_once_are_all_served(
    which: int, made: tuple[tuple[TlsSuite, ...], Path], peer: SecuredPeer
) -> None:
    served = handshakes.run_wave(peer.port, made[0][which], 20)
    assert served.turned_away == 0 and served.seconds > 0
    assert len(peer.requests) == 20


def test_a_client_that_is_turned_away_connects_again(made: tuple[tuple[TlsSuite, ...], Path]) -> None:
    with closing(SecuredPeer(made[1], turned_away=3)) as peer:
        served = handshakes.run_wave(peer.port, made[0][0], 10)
        assert served.turned_away == 3 and len(peer.requests) == 10


def test_a_broker_has_one_listener_for_each_suite(tmp_path: Path, made: tuple[tuple[TlsSuite, ...], Path]) -> None:
    chosen, store = made
    broker = Moldau(tmp_path / "broker", 9092)
    broker.set(listener_properties(9092, {"TLS 1.3": 9100, "TLS 1.2": 9102}, chosen, store))
    lines = broker.properties.read_text().splitlines()
    names = [line.partition("=")[0] for line in lines]
    assert len(set(names)) == len(names)
    assert "listener.name.tls13.ssl.cipher.suites=TLS_AES_256_GCM_SHA384" in lines
    assert "listener.name.tls12.ssl.enabled.protocols=TLSv1.2" in lines
    assert (
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093,TLS13://127.0.0.1:9100,TLS12://127.0.0.1:9102"
        in lines
    )


def test_the_loads_under_tls_are_those_that_have_rows() -> None:
    named = {row.name for row in ROWS if row.group == "tls"}
    for suite in ("TLS 1.3", "TLS 1.2"):
        assert {f"{suite}, {workload.name}: rate" for workload in workloads()} <= named


def test_there_are_so_many_different_acls_and_one_is_of_the_load() -> None:
    drawn = list(acls.acl_creations("moldau"))
    assert len({(each.principal, each.resource_name) for each in drawn}) == len(drawn) == acls.ACLS_COUNT
    assert [each.resource_name for each in drawn if each.principal == "User:ANONYMOUS"] == ["moldau"]


def test_the_p99_beside_the_handshakes_is_held_against_that_without() -> None:
    def outcome(latency_ms: int) -> Outcome:
        return Outcome(100, 1.0, 0, 0, array("Q", [latency_ms * 1_000_000] * 100), 0.0)

    def round_of(seconds: float) -> handshakes.HandshakeRun:
        return handshakes.HandshakeRun(outcome(2), outcome(5), handshakes.HandshakeWave(seconds, 1))

    times, p99, served = handshakes.figures_of({"moldau": [round_of(0.5)], "apache": [round_of(2.0)]})
    assert times.ours == 2.5 and p99.ours == 5.0
    assert served.ratio == 0.25 and "moldau 1, apache 1" in served.note
    held = {row.name for row in ROWS if row.group == "tls"}
    assert {times.name, served.name} <= held
