"""Which quota counts for a client, and how long clients are throttled."""

from __future__ import annotations

from random import Random

import pytest

from moldau.security.quotas import throttling
from moldau.security.quotas.entity import CONNECTION_CREATION_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from moldau.security.quotas.limits import CLIENT_ID_LENGTH_MAX, ClientLimit, QuotaLimits, QuotaTags
from moldau.security.quotas.sampled_rate import QuotaWindows, SampledRate, throttle_ms
from moldau.security.quotas.throttling import ClientThrottle

BOTH = QuotaTags("alice", "app")
PRECEDENCE: tuple[tuple[dict[str, str | None], QuotaTags], ...] = (
    ({"user": "alice", "client-id": "app"}, BOTH),
    ({"user": "alice", "client-id": None}, BOTH),
    ({"user": "alice"}, QuotaTags("alice", "")),
    ({"user": None, "client-id": "app"}, BOTH),
    ({"user": None, "client-id": None}, BOTH),
    ({"user": None}, QuotaTags("alice", "")),
    ({"client-id": "app"}, QuotaTags("", "app")),
    ({"client-id": None}, QuotaTags("", "app")),
)
"""The entities that concern the client `app` of `alice`, the most particular first."""


def entity(names: dict[str, str | None]) -> QuotaEntity:
    return QuotaEntity.from_parts(names.items())


def test_the_most_particular_entity_decides() -> None:
    limits = QuotaLimits()
    assert limits.limit_of_client(PRODUCER_BYTE_RATE, "alice", "app") is None
    for value, (names, tags) in reversed(list(enumerate(PRECEDENCE))):
        limits.apply_changes({entity(names): {PRODUCER_BYTE_RATE: float(value)}})
        assert limits.limit_of_client(PRODUCER_BYTE_RATE, "alice", "app") == ClientLimit(float(value), tags)
    for value, (names, _) in enumerate(PRECEDENCE):
        limits.apply_changes({entity(names): {"consumer_byte_rate": 1.0} if value % 2 else None})
        found = limits.limit_of_client(PRODUCER_BYTE_RATE, "alice", "app")
        assert (None if found is None else found.value) == (value + 1 if value + 1 < len(PRECEDENCE) else None)


def test_quotas_of_others_do_not_count() -> None:
    limits = QuotaLimits()
    stamp = limits.stamp
    for names in ({"user": "bob"}, {"user": "alice", "client-id": "other"}, {"client-id": "other"}):
        limits.apply_changes({entity({**names}): {PRODUCER_BYTE_RATE: 1.0}})
    assert limits.limit_of_client(PRODUCER_BYTE_RATE, "alice", "app") is None
    assert limits.stamp != stamp


def test_a_long_client_id_has_a_rate_of_its_own_and_is_not_kept() -> None:
    long, like_it = "a" * 32_000 + "1", "a" * 32_000 + "2"
    limits = QuotaLimits()
    limits.apply_changes(
        {
            entity({"client-id": None}): {PRODUCER_BYTE_RATE: 1000.0},
            entity({"client-id": long}): {PRODUCER_BYTE_RATE: 5.0},
        }
    )
    throttle = ClientThrottle(PRODUCER_BYTE_RATE, limits, QuotaWindows())
    for client_id in (long, like_it, "a" * CLIENT_ID_LENGTH_MAX):
        throttle.record("", client_id, 1, 0)
        throttle.record("", client_id, 1, 0)
    ids = [tags.client_id for tags, _ in throttle.rates]
    assert len(set(ids)) == 3 and max(map(len, ids)) <= CLIENT_ID_LENGTH_MAX
    assert [key[2] for key in limits._known] == ["a" * CLIENT_ID_LENGTH_MAX]
    found = limits.limit_of_client(PRODUCER_BYTE_RATE, "", long)
    assert found is not None and found.value == 5.0


def test_an_address_has_a_limit_of_its_own_or_the_default() -> None:
    limits = QuotaLimits()
    assert limits.limit_of_address("10.0.0.1") is None
    limits.apply_changes({entity({"ip": None}): {CONNECTION_CREATION_RATE: 7.0}})
    limits.apply_changes({entity({"ip": "10.0.0.1"}): {CONNECTION_CREATION_RATE: 5.0}})
    assert (limits.limit_of_address("10.0.0.1"), limits.limit_of_address("10.0.0.2")) == (5.0, 7.0)


def throttle(*quotas: tuple[dict[str, str | None], float]) -> ClientThrottle:
    limits = QuotaLimits()
    limits.apply_changes({entity(names): {PRODUCER_BYTE_RATE: value} for names, value in quotas})
    return ClientThrottle(PRODUCER_BYTE_RATE, limits, QuotaWindows())


def test_clients_of_one_entity_share_its_rate() -> None:
    shared = throttle(({"user": "alice"}, 100.0))
    assert shared.record("alice", "a", 900, 0) == 0
    assert shared.record("alice", "b", 1100, 0) == 10_000, "2000 in 10 s are twice of what is allowed"
    assert shared.record("bob", "a", 10**9, 0) == 0, "no quota concerns that client"
    default = throttle(({"user": None}, 100.0))
    assert default.record("alice", "a", 900, 0) == 0
    assert default.record("bob", "a", 900, 0) == 0, "each user has a rate of its own under the default"


def test_rates_are_bounded_in_number_and_dropped_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "RATES_MAX", 3)
    clients = throttle(({"client-id": None}, 1.0))
    for number in range(10):
        clients.record("u", f"c{number}", 1, number)
        assert len(clients._rates) <= 3
    assert list(clients._rates) == [QuotaTags("", f"c{number}") for number in (7, 8, 9)]
    clients.record("u", "new", 1, throttling.IDLE_MS + 9)
    assert list(clients._rates) == [QuotaTags("", "new")]


def long_story(random: Random) -> list[tuple[int, float]]:
    """(time in ms, value) of the requests of a client with a limit of 100/s: bursts, and between them hours in which it
    stays below its limit, or is silent for less than an hour.
    """
    now_ms, story = 0, []
    for _ in range(6):
        quiet_ms = random.choice((throttling.IDLE_MS - 1, throttling.IDLE_MS + 20_000, 2 * throttling.IDLE_MS))
        pause_ms = random.choice((1_000, 9_000, 59_000, throttling.IDLE_MS - 1))
        for _ in range(max(1, quiet_ms // pause_ms)):
            now_ms += pause_ms
            story.append((now_ms, 0.09 * min(pause_ms, 10_000)))
        for _ in range(20):
            now_ms += random.choice((0, 1, 500, 2_000))
            story.append((now_ms, 300.0))
    return story


@pytest.mark.parametrize("seed", range(6))
def test_what_other_clients_do_changes_no_throttle_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate of a client that was heard of within the hour is kept, whoever comes, and however quiet the client was:
    its throttle times are those of a rate that is never dropped.
    """
    monkeypatch.setattr(throttling, "RATES_MAX", 50)
    random = Random(seed)
    clients, alone = throttle(({"client-id": None}, 100.0)), SampledRate(QuotaWindows())
    throttled, newcomers = 0, 0
    for now_ms, value in long_story(random):
        if random.random() < 0.2:
            newcomers += 1
            clients.record("u", f"other-{newcomers % 70}", random.choice((1.0, 5_000.0)), now_ms)
        alone.record(value, now_ms)
        delay_ms = clients.record("u", "client", value, now_ms)
        assert delay_ms == throttle_ms(alone, 100.0, now_ms), now_ms
        throttled += delay_ms > 0
    assert throttled > 20
