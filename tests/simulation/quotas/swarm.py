"""The client quotas of one broker alone, for hours: clients that send all the time, that pause and return, that come
once, that share a rate; quotas that change; connections from addresses.

A client obeys its throttle times. Two rules, with a period of quota.window.num - 1 windows:

too much     in one period a client sends no more than its quota allows, beside the requests that each throttle time,
             longer than the one before, leaves to it; or than its quota allows in two windows more
too little   a client that sent no more in a period and two windows than its quota allows in the period is not throttled
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import sqrt
from random import Random
from typing import Final

from moldau.broker.network.client_quotas import ClientQuotas
from moldau.broker.network.connection_quota import AddressRates
from moldau.security.quotas.entity import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    USER,
    QuotaEntity,
)
from moldau.security.quotas.limits import QuotaTags
from moldau.security.quotas.sampled_rate import QuotaWindows
from moldau.security.quotas.throttling import ClientThrottle
from tests.simulation.invariants.observation import Violation

HOUR_MS: Final = 3_600_000
WINDOWS: Final = (QuotaWindows(), QuotaWindows(), QuotaWindows(6, 500), QuotaWindows(3, 2000))
BYTE_RATES: Final = (1000.0, 20_000.0)
CONNECTION_RATE: Final = 4.0
CHANGES: Final = 0.1
"""How often quotas change when clients come."""


@dataclass(slots=True)
class Sent:
    """What the clients of one rate have sent."""

    values: deque[tuple[int, float]] = field(default_factory=deque)
    """(time in ms, value) of the last requests."""
    request_max: float = 0.0
    clients: set[str] = field(default_factory=set)
    since_ms: int = 0
    """When the quota was last changed."""
    begun_ms: int = 0
    """When a client sent after all of them had paused, so that no window held anything."""

    def total(self, after_ms: int) -> float:
        """The sum of the values after a time."""
        return sum(value for at_ms, value in self.values if at_ms > after_ms)


@dataclass(slots=True)
class Client:
    """`eagerness`: the share of its quota that it asks for; above 1 it sends whenever it may."""

    number: int
    user: str
    id: str
    is_consumer: bool
    eagerness: float
    pauses_ms: tuple[int, ...]
    """Of which one is drawn after a series of requests; empty for a client that never pauses."""
    left: int
    """Requests until it pauses, or is gone."""


class Swarm:
    """One seed. `run` raises `Violation`."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"{seed}/quotas")
        self.windows = random.choice(WINDOWS)
        self.period_ms = (self.windows.kept - 1) * self.windows.size_ms
        self.longest_ms = (self.windows.kept + 1) * self.windows.size_ms
        self.now_ms = random.randrange(10**9)
        self.end_ms = self.now_ms + random.randint(HOUR_MS + HOUR_MS // 5, 2 * HOUR_MS)
        self.quotas = ClientQuotas(self.windows)
        self.addresses = AddressRates(self.quotas.limits, self.windows)
        self.throttled = self.requests = 0
        self._sent: dict[tuple[str, QuotaTags | str], Sent] = {}
        self._numbers = count(1)
        self._events: list[tuple[int, int, Client | str | None]] = []
        """(time in ms, number, a client whose turn it is, an address that connects, or None for a newcomer)."""
        self._arrivals_ms = random.choice((60_000, HOUR_MS, HOUR_MS, HOUR_MS))
        self._change()
        for number in range(random.randint(2, 3)):
            self._add(self._client(lasts=True, is_steady=number == 0))
        self._push(self._arrivals_ms + 60_000, None)
        for number in range(random.choice((0, 1, 2))):
            self._push(number, f"10.0.0.{number}")

    def _push(self, after_ms: int, what: Client | str | None) -> None:
        heappush(self._events, (self.now_ms + after_ms, next(self._numbers), what))

    def run(self) -> None:
        while self._events and self.now_ms < self.end_ms:
            self.now_ms, _, what = heappop(self._events)
            if what is None:
                self._arrive()
            elif isinstance(what, str):
                self._connect(what)
            else:
                self._request(what)

    # Quotas

    def _rates(self) -> dict[str, float]:
        return {key: self.random.choice(BYTE_RATES) for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)}

    def _change(self) -> None:
        """Users have quotas, and client ids have; of the rest each client id has the default."""
        self.quotas.changed(
            {
                QuotaEntity.from_parts([(CLIENT_ID, None)]): self._rates(),
                QuotaEntity.from_parts([(CLIENT_ID, "known")]): self._rates(),
                QuotaEntity.from_parts([(USER, "shared")]): self._rates(),
                QuotaEntity.from_parts([(USER, "both"), (CLIENT_ID, None)]): self._rates(),
                QuotaEntity.from_parts([(IP, None)]): {CONNECTION_CREATION_RATE: CONNECTION_RATE},
            }
        )
        for sent in self._sent.values():
            sent.since_ms = self.now_ms

    # Clients

    def _client(self, *, lasts: bool, is_steady: bool = False) -> Client:
        """`is_steady`: it has a rate of its own, asks for more than it gets, and never pauses."""
        random, number = self.random, next(self._numbers)
        pauses_ms: tuple[int, ...] = ()
        if is_steady:
            return Client(number, "ANONYMOUS", f"client-{number}", random.random() < 0.4, 5.0, (), 1 << 30)
        if random.random() < 0.5:
            pauses_ms = random.choice(((self.period_ms // 2, self.period_ms), (60_000,), (HOUR_MS, HOUR_MS + 5_000)))
        user = random.choice(("ANONYMOUS", "ANONYMOUS", "shared", "both"))
        return Client(
            number,
            user,
            random.choice((f"client-{number}", f"client-{number}", "known")),
            random.random() < 0.4,
            random.choice((0.3, 0.7, 5.0, 5.0)),
            pauses_ms if lasts else (),
            random.randint(1, 60) if pauses_ms or not lasts else 1 << 30,
        )

    def _add(self, client: Client) -> None:
        self._push(self.random.randrange(5000), client)

    def _arrive(self) -> None:
        """Clients that no quota has counted yet, for a few requests each."""
        for _ in range(self.random.randint(1, 5)):
            self._add(self._client(lasts=False))
        if self.random.random() < CHANGES:
            self._change()
        self._push(int(self._arrivals_ms * (0.5 + self.random.random())), None)

    def _request(self, client: Client) -> None:
        throttle = self.quotas.fetch if client.is_consumer else self.quotas.produce
        key = CONSUMER_BYTE_RATE if client.is_consumer else PRODUCER_BYTE_RATE
        limit = self.quotas.limits.limit_of_client(key, client.user, client.id)
        assert throttle is not None and limit is not None
        value = limit.value * self.windows.size_ms / 1000 * self.random.choice((0.5, 2.0, 2.0))
        sent = self._sent.setdefault((key, limit.tags), Sent())
        sent.clients.add(f"{client.number}")
        delay_ms = self._counted(client, throttle, sent, value, limit.value)
        client.left -= 1
        if client.left <= 0 and not client.pauses_ms:
            return
        if client.left <= 0:
            client.left = self.random.randint(1, 60)
            delay_ms += self.random.choice(client.pauses_ms) + self.random.randrange(1000)
        else:
            delay_ms += int(1000 * value / limit.value / client.eagerness)
        self._push(delay_ms + 1, client)

    def _counted(self, client: Client, throttle: ClientThrottle, sent: Sent, value: float, limit: float) -> int:
        """The throttle time (ms). A consumer that is throttled gets nothing."""
        delay_ms = throttle.record(client.user, client.id, value, self.now_ms)
        is_refused = client.is_consumer and delay_ms > 0
        if is_refused:
            throttle.refund(client.user, client.id, value, self.now_ms)
        self._judge(f"{client}", sent, limit, value, delay_ms, is_refused=is_refused)
        return delay_ms

    def _connect(self, address: str) -> None:
        limit = self.quotas.limits.limit_of_address(address)
        assert limit is not None
        delay_ms = self.addresses.throttle_ms(address, self.now_ms)
        sent = self._sent.setdefault((CONNECTION_CREATION_RATE, address), Sent())
        self._judge(address, sent, limit, 1, delay_ms, is_refused=delay_ms > 0)
        is_long = self.random.random() < 0.03
        pause_ms = self.random.randrange(HOUR_MS // 2) if is_long else self.random.randrange(400)
        self._push(delay_ms + pause_ms, address)

    # The rules

    def _most(self, limit: float, sent: Sent) -> float:
        """After a period's worth at once the throttle times of requests of size r are r, 2r, 3r, … over the limit."""
        allowed, size, count = limit * self.period_ms / 1000, sent.request_max, max(len(sent.clients), 1)
        later = limit * self.longest_ms / 1000 + 2 * size * count
        if self.now_ms - sent.begun_ms > 3 * self.longest_ms:
            return later
        at_first = allowed + size * (2 + sqrt(2 * allowed / size))
        return max(at_first, later) + at_first * (count - 1)

    def _judge(self, who: str, sent: Sent, limit: float, value: float, delay_ms: int, *, is_refused: bool) -> None:
        """`value` was counted now, unless it `is_refused`."""
        self.requests += 1
        self.throttled += delay_ms > 0
        now_ms, longest_ms = self.now_ms, self.longest_ms
        while sent.values and sent.values[0][0] < now_ms - longest_ms:
            sent.values.popleft()
        if not sent.values:
            sent.begun_ms = now_ms
        is_settled = now_ms - sent.since_ms > 2 * longest_ms or not sent.since_ms
        before = sent.total(now_ms - self.period_ms)
        sent.request_max = max(sent.request_max, value)
        most = self._most(limit, sent)
        if is_settled and before > most:
            raise Violation(f"{who} sent {before:.0f} in {self.period_ms} ms; {most:.0f} are the most of {limit}/s")
        counted = sent.total(now_ms - longest_ms - 1) + value
        if delay_ms > 0 and is_settled and counted <= limit * self.period_ms / 1000:
            raise Violation(f"{who} sent {counted:.0f} in {longest_ms} ms of {limit}/s, and waits for {delay_ms} ms")
        if not is_refused:
            sent.values.append((now_ms, value))
