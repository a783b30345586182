"""Quotas of an entity are kept in the order in which Apache Kafka lists them: that of Java's HashMap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

import pytest

from moldau.broker.coordinators.shards import java_hash
from moldau.kraft.image.security.client_quotas import ClientQuotasDelta, ClientQuotasImage, record_of
from moldau.security.quotas.entity import CLIENT_KEYS, IP_KEYS, JAVA_HASH_BUCKETS, QuotaEntity

USER = QuotaEntity.from_parts([("user", "u")])


def changed(image: ClientQuotasImage, changes: Mapping[str, float | None]) -> ClientQuotasImage:
    delta = ClientQuotasDelta(image)
    for key, value in changes.items():
        delta.replay(record_of(USER, key, value))
    return delta.apply()


def keys_of(image: ClientQuotasImage) -> list[str]:
    return list(image.by_entity.get(USER) or {})


def orders(*keys: str) -> Iterator[ClientQuotasImage]:
    """Images that were made by one change, in each order of its records."""
    for order in permutations(keys):
        yield changed(ClientQuotasImage(), dict.fromkeys(order, 1.0))


@pytest.mark.parametrize(
    "expected",
    [
        ["consumer_byte_rate", "controller_mutation_rate"],
        ["consumer_byte_rate", "request_percentage", "producer_byte_rate"],
        ["controller_mutation_rate", "producer_byte_rate"],
        ["producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate", "request_percentage"],
    ],
)
def test_the_order_is_that_seen_of_apache_kafka(expected: list[str]) -> None:
    for image in orders(*expected):
        assert keys_of(image) == expected


def test_a_key_that_comes_later_stays_behind_those_of_its_bucket() -> None:
    one = changed(ClientQuotasImage(), {"producer_byte_rate": 1.0})
    both = changed(one, {"request_percentage": 1.0, "producer_byte_rate": 2.0})
    assert keys_of(both) == ["producer_byte_rate", "request_percentage"]
    assert keys_of(changed(both, {"producer_byte_rate": None})) == ["request_percentage"]


def test_the_places_are_those_of_java() -> None:
    assert JAVA_HASH_BUCKETS.keys() == {*CLIENT_KEYS, *IP_KEYS}
    for key, place in JAVA_HASH_BUCKETS.items():
        code = java_hash(key) & 0xFFFFFFFF
        assert (code ^ code >> 16) % 16 == place, key
