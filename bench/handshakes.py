"""A thousand clients that connect under TLS in one moment, as after a network failure, while others produce.

A client is done when its first request after the handshake is answered. A client that is turned away connects again.
The produces leave at a set rate over connections that exist before, and their latencies count from the set times.
"""

from __future__ import annotations

import resource
import select
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from bench import load
from bench.contenders import Contender
from bench.figures import Figure
from bench.frames import request_frame
from bench.groups import RunForm
from bench.libssl import TLS_1_2, TlsSuite
from bench.outcome import LoadFailed, Outcome
from bench.secured import SecuredContender
from bench.workloads import SMALL
from moldau.protocol.messages.api_versions import ApiVersionsRequest

NAME: Final = "1,000 TLS handshakes at once"
CLIENTS: Final = 1_000
DESCRIPTORS: Final = 8 * CLIENTS
RATE: Final = 2_000
"""The number of produces of 200 B in a second."""
WARM_UP_WAVES: Final = 3
LOAD_S_MIN: Final = 1.0
SILENCE_S_MAX: Final = 90.0
"""The longest time without progress. A client whose SYN met a full queue tries again after 1, 2, 4, 8, 16 and 32 s."""
API_VERSIONS_FRAME: Final = request_frame(
    ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3
)


class HandshakeWave(NamedTuple):
    """The time (s) from the first connection to the last answer, and the number of clients that connected again."""

    seconds: float
    turned_away: int


class HandshakeRun(NamedTuple):
    """The produces without the wave of handshakes, those beside it, and the wave."""

    alone: Outcome
    beside: Outcome
    wave: HandshakeWave


def measure_crowd(brokers: list[SecuredContender], suite: TlsSuite, form: RunForm) -> list[Figure]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard) if hard > 0 else DESCRIPTORS, hard))
    print(f"  {NAME}", flush=True)
    runs: dict[str, list[HandshakeRun]] = {broker.contender.name: [] for broker in brokers}
    # A load lasts as long as the wave before it took: its latencies are those of the wave, and not of the calm after.
    lasting_s = dict.fromkeys(runs, 0.0)
    for broker in brokers:
        for _ in range(WARM_UP_WAVES):
            lasting_s[broker.contender.name] = run_wave(broker.ports[suite.name], suite, CLIENTS).seconds
    for _ in range(form.rounds):
        for broker in brokers:
            name = broker.contender.name
            runs[name].append(run := _round(broker, suite, lasting_s[name]))
            lasting_s[name] = run.wave.seconds
            print(f"  {name}: {_sentence(run)}", flush=True)
    return figures_of(runs)


def figures_of(runs: dict[str, list[HandshakeRun]]) -> list[Figure]:
    turned_away = ", ".join(f"{name} {sum(run.wave.turned_away for run in mine)}" for name, mine in runs.items())
    note = f"{RATE:,} produces a second; clients that had to connect again: {turned_away}"

    def values(of: str) -> dict[str, list[float]]:
        return {name: [getattr(run, of).latency_ms(0.99) for run in mine] for name, mine in runs.items()}

    alone, beside = values("alone"), values("beside")
    times = {
        name: [with_wave / without for with_wave, without in zip(beside[name], alone[name], strict=True)]
        for name in runs
    }
    served = {name: [run.wave.seconds for run in mine] for name, mine in runs.items()}
    return [
        Figure(f"{NAME}: p99 of produces meanwhile, times that without", "x", times, note=note),
        Figure(f"{NAME}: p99 of produces meanwhile", "ms", beside, note=note),
        Figure(f"{NAME}: until all clients are served", "s", served, note=note),
    ]


def _round(broker: SecuredContender, suite: TlsSuite, lasting_s: float) -> HandshakeRun:
    requests = round(RATE * max(lasting_s, LOAD_S_MIN))
    alone = _produced(broker.contender, requests)
    with ThreadPoolExecutor(1) as beside:
        producing = beside.submit(_produced, broker.contender, requests)
        crowd = run_wave(broker.ports[suite.name], suite, CLIENTS)
        return HandshakeRun(alone, producing.result(), crowd)


def _produced(contender: Contender, requests: int) -> Outcome:
    with contender.new_topic() as (client, topic):
        return load.run_load(
            contender.port,
            SMALL.frames(client, topic),
            in_flight=SMALL.in_flight,
            requests=requests,
            error_position=SMALL.error_position(topic),
            interval_ns=round(1e9 / RATE),
        )


def run_wave(port: int, suite: TlsSuite, clients: int) -> HandshakeWave:
    """Connect many clients at once, and wait until each is served. Raises `LoadFailed` after half a minute without
    progress.
    """
    context = ssl.create_default_context(cafile=str(suite.authority))
    version = ssl.TLSVersion.TLSv1_2 if suite.version == TLS_1_2 else ssl.TLSVersion.TLSv1_3
    context.minimum_version = context.maximum_version = version
    polling = select.poll()
    visits: dict[int, _Visit] = {}
    turned_away = 0

    def begin() -> None:
        visit = _Visit(port, suite.host, context)
        visits[visit.descriptor] = visit
        polling.register(visit.descriptor, next(visit.steps))

    began = time.perf_counter()
    try:
        for _ in range(clients):
            begin()
        while visits:
            events = polling.poll(SILENCE_S_MAX * 1000)
            if not events:
                raise LoadFailed(f"{len(visits)} clients of {clients} are not served, and nothing came for 30 s")
            for descriptor, _ in events:
                try:
                    polling.modify(descriptor, next(visits[descriptor].steps))
                    continue
                except StopIteration:
                    pass
                except OSError:
                    turned_away += 1
                    polling.unregister(descriptor)
                    visits.pop(descriptor).close()
                    begin()
                    continue
                polling.unregister(descriptor)
                visits.pop(descriptor).close()
        return HandshakeWave(time.perf_counter() - began, turned_away)
    finally:
        for visit in visits.values():
            visit.close()


class _Visit:
    """One client. `steps` yields the poll(2) events that it waits for, and ends when the client is served."""

    def __init__(self, port: int, host: str, context: ssl.SSLContext) -> None:
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self.descriptor = self._socket.fileno()
        self._socket.connect_ex(("127.0.0.1", port))
        self.steps = self._go(host, context)

    def close(self) -> None:
        self._socket.close()

    def _go(self, host: str, context: ssl.SSLContext) -> Iterator[int]:
        yield select.POLLOUT
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise ConnectionError("refused")
        # The descriptor goes over to the new socket.
        secured = self._socket = context.wrap_socket(
            self._socket, server_hostname=host, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        while True:
            try:
                secured.do_handshake()
                break
            except ssl.SSLWantReadError:
                yield select.POLLIN
            except ssl.SSLWantWriteError:
                yield select.POLLOUT
        secured.send(API_VERSIONS_FRAME)
        while True:
            try:
                if not secured.recv(1 << 16):
                    raise ConnectionError("closed")
                return
            except ssl.SSLWantReadError:
                yield select.POLLIN


def _sentence(run: HandshakeRun) -> str:
    return (
        f"p99 of a produce {run.alone.latency_ms(0.99):.2f} ms alone, {run.beside.latency_ms(0.99):.2f} ms beside;"
        f" {CLIENTS} clients served in {run.wave.seconds:.2f} s, {run.wave.turned_away} connected again"
    )
