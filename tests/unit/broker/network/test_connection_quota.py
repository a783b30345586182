"""Numbers of connections: who may come, who waits and who is sent away, as observed of Apache Kafka 4.3.1."""

from __future__ import annotations

from moldau.broker.config.loading import checked_config
from moldau.broker.network.connection_quota import (
    BURST_S,
    WAIT_MS_MAX,
    ConnectionLimits,
    ConnectionQuotas,
    CreationRate,
    connection_limits,
)
from tests.support.node import PROPERTIES


def test_without_limits_everybody_may_come() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(), ("A",), None)
    for number in range(10_000):
        assert quotas.wait_ms("A", number) == 0 and not quotas.is_full("1.2.3.4")
        quotas.accepted("A")
        quotas.begun("A", "1.2.3.4")
    assert (quotas.count, quotas.excess()) == (10_000, 0)


def test_the_limit_of_all_listeners_and_that_of_one() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(count_max=3, count_max_of_listener=(("A", 2),)), ("A", "B", "C"), None)
    quotas.begun("A", "x")
    quotas.begun("A", "x")
    assert (quotas.wait_ms("A", 0), quotas.wait_ms("B", 0)) == (None, 0)
    quotas.begun("B", "x")
    assert (quotas.wait_ms("A", 0), quotas.wait_ms("B", 0), quotas.wait_ms("C", 0)) == (None, None, None)
    quotas.ended("A", "x")
    assert (quotas.wait_ms("A", 0), quotas.wait_ms("B", 0)) == (0, 0)


def test_brokers_come_even_where_clients_are_too_many_and_clients_make_room() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(count_max=1), ("CLIENTS", "BROKERS"), "BROKERS")
    quotas.begun("CLIENTS", "x")
    assert (quotas.wait_ms("CLIENTS", 0), quotas.wait_ms("BROKERS", 0)) == (None, 0)
    quotas.begun("BROKERS", "x")
    assert quotas.excess() == 1
    assert quotas.may_lose("CLIENTS") and not quotas.may_lose("BROKERS")


def test_a_single_listener_is_nobodys_favourite() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(count_max=1), ("PLAINTEXT",), "PLAINTEXT")
    quotas.begun("PLAINTEXT", "x")
    assert quotas.wait_ms("PLAINTEXT", 0) is None and quotas.may_lose("PLAINTEXT")


def test_an_address_has_a_limit_of_its_own_or_that_of_all() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(per_address_max=2, of_address=(("b", 1), ("c", 3))), ("A",), None)
    full = {}
    for address in "abc":
        while not quotas.is_full(address):
            quotas.begun("A", address)
            full[address] = quotas.count_of_address[address]
    assert full == {"a": 2, "b": 1, "c": 3}
    quotas.ended("A", "b")
    assert not quotas.is_full("b") and "b" not in quotas.count_of_address


def test_a_burst_is_let_through_and_what_follows_comes_at_the_rate() -> None:
    rate, now_ms, times = CreationRate(5), 0, []
    for _ in range(100):
        while wait_ms := rate.wait_ms(now_ms):
            assert wait_ms <= WAIT_MS_MAX
            now_ms += wait_ms
        rate.spend()
        times.append(now_ms)
    assert times[5 * BURST_S - 1] == 0
    assert 9_900 <= times[-1] <= 10_200


def test_a_rate_of_zero_lets_one_a_second_through() -> None:
    rate = CreationRate(0)
    assert rate.wait_ms(0) == 0
    rate.spend()
    assert 0 < rate.wait_ms(1) <= WAIT_MS_MAX
    assert rate.wait_ms(1001) == 0


def test_the_rate_of_a_listener_counts_beside_that_of_all() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(creation_rate=10, creation_rate_of_listener=(("A", 1),)), ("A", "B"), "")
    for _ in range(10):
        assert quotas.wait_ms("A", 0) == 0
        quotas.accepted("A")
    assert quotas.wait_ms("A", 0) and quotas.wait_ms("B", 0) == 0


def test_the_rate_of_all_does_not_hold_for_brokers_and_they_take_nothing_of_it() -> None:
    limits = ConnectionLimits(creation_rate=1, creation_rate_of_listener=(("BROKERS", 3),))
    quotas = ConnectionQuotas(limits, ("CLIENTS", "BROKERS"), "BROKERS")
    for _ in range(3 * BURST_S):
        assert quotas.wait_ms("BROKERS", 0) == 0
        quotas.accepted("BROKERS")
    assert quotas.wait_ms("BROKERS", 0), "the rate of its own listener holds"
    for _ in range(BURST_S):
        assert quotas.wait_ms("CLIENTS", 0) == 0
        quotas.accepted("CLIENTS")
    assert quotas.wait_ms("CLIENTS", 0) and quotas.wait_ms("BROKERS", 1000) == 0


def test_a_change_takes_effect_and_leaves_the_rates_that_stay_alone() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(creation_rate=1), ("A",), None)
    for _ in range(BURST_S):
        assert quotas.wait_ms("A", 0) == 0
        quotas.accepted("A")
    quotas.set_limits(ConnectionLimits(creation_rate=1, count_max=5))
    assert quotas.wait_ms("A", 0)
    quotas.set_limits(ConnectionLimits(creation_rate=2))
    assert quotas.wait_ms("A", 0) == 0


def test_limits_come_from_the_settings() -> None:
    config = checked_config(
        {
            **PROPERTIES,
            "max.connections": "100",
            "max.connections.per.ip": "10",
            "max.connections.per.ip.overrides": "10.0.0.1:5, [::1]:7",
            "max.connection.creation.rate": "50",
            "listener.name.plaintext.max.connections": "80",
            "listener.name.plaintext.max.connection.creation.rate": "20",
        }
    )
    assert connection_limits(config) == ConnectionLimits(
        100, 50, 10, (("10.0.0.1", 5), ("::1", 7)), (("PLAINTEXT", 80),), (("PLAINTEXT", 20),)
    )
    assert config.warnings == ()
    assert connection_limits(checked_config(PROPERTIES)) == ConnectionLimits()
