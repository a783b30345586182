"""AlterClientQuotas; results were observed on Apache Kafka 4.3.1."""

from __future__ import annotations

import math

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from moldau.security.quotas.entity import QuotaEntity
from tests.support.deciding import Deciding

Names = dict[str, str | None]
Ops = dict[str, float | None]


def entry(names: Names, ops: Ops) -> RequestEntryData:
    return RequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )


def alter(cluster: Deciding, *entries: RequestEntryData, validate_only: bool = False) -> list[tuple[int, str | None]]:
    reply = cluster.ask(AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only))
    assert isinstance(reply, AlterClientQuotasResponse)
    return [(each.error_code, each.error_message) for each in reply.entries]


def values(cluster: Deciding, **names: str | None) -> dict[str, float]:
    parts = {kind.replace("_", "-"): name for kind, name in names.items()}
    return dict(cluster.image.quotas.by_entity.get(QuotaEntity.from_parts(parts.items())) or {})


def test_quotas_are_set_changed_and_removed_by_entity() -> None:
    cluster = Deciding()
    assert (
        alter(
            cluster,
            entry({"user": "alice"}, {"producer_byte_rate": 1024.0, "request_percentage": 50.5}),
            entry({"user": "alice", "client-id": "c"}, {"consumer_byte_rate": 5.0}),
            entry({"user": None}, {"controller_mutation_rate": 0.5}),
            entry({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
            entry({"ip": None}, {"connection_creation_rate": 7.0}),
        )
        == [(0, None)] * 5
    )
    assert values(cluster, user="alice") == {"producer_byte_rate": 1024.0, "request_percentage": 50.5}
    assert values(cluster, client_id="c", user="alice") == {"consumer_byte_rate": 5.0}
    assert values(cluster, user=None) == {"controller_mutation_rate": 0.5}
    assert cluster.replayed_snapshot() == cluster.image
    changed = {"producer_byte_rate": 1024.0, "request_percentage": None, "controller_mutation_rate": None}
    assert alter(cluster, entry({"user": "alice"}, changed)) == [(0, None)]
    assert len(cluster.written) == 1, "what is as it was needs no record"
    assert values(cluster, user="alice") == {"producer_byte_rate": 1024.0}
    alter(cluster, entry({"ip": None}, {"connection_creation_rate": None}))
    assert QuotaEntity((("ip", None),)) not in cluster.image.quotas.by_entity


@pytest.mark.parametrize(
    ("names", "ops", "message"),
    [
        ({}, {}, "Invalid empty client quota entity"),
        ({"group": "g"}, {}, "Unhandled client quota entity type: group"),
        ({"": "g"}, {}, "Unhandled client quota entity type: "),
        ({"user": ""}, {}, "Empty user not supported"),
        (
            {"user": "a", "ip": "10.0.0.1"},
            {},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ({"ip": "no such host"}, {}, "no such host is not a valid IP or resolvable host."),
        ({"user": "a"}, {"foo": 1.0}, "Invalid configuration key foo"),
        ({"user": "a"}, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        ({"ip": "::1"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ({"user": "a"}, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "a"}, {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "a"}, {"producer_byte_rate": math.nan}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        (
            {"user": "a"},
            {"producer_byte_rate": 1e19},
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (
            {"user": "a"},
            {"consumer_byte_rate": math.inf},
            "Proposed value for consumer_byte_rate is too large for a LONG.",
        ),
        (
            {"ip": "10.0.0.1"},
            {"connection_creation_rate": 1e12},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_an_entry_that_cannot_be_is_refused_and_others_are_made(names: Names, ops: Ops, message: str) -> None:
    cluster = Deciding()
    good = entry({"user": "good"}, {"producer_byte_rate": 1.0})
    refused = (ErrorCode.INVALID_REQUEST, message)
    assert alter(cluster, entry(names, {"request_percentage": None, **ops}), good) == [refused, (0, None)]
    assert len(cluster.image.quotas.by_entity) == 1


def test_values_that_are_almost_whole_and_removals_of_what_is_not_there_pass() -> None:
    cluster = Deciding()
    assert alter(cluster, entry({"user": "a"}, {"producer_byte_rate": 1.0000001})) == [(0, None)]
    assert alter(cluster, entry({"user": "z"}, {"producer_byte_rate": None, "foo": None})) == [(0, None)]
    assert not cluster.written
    assert alter(cluster, entry({"user": "z"}, {})) == [(0, None)]


def test_an_entity_is_named_once() -> None:
    cluster = Deciding()
    one = entry({"user": "se", "client-id": None}, {"producer_byte_rate": 1.0})
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=null, user=se})"
    assert alter(cluster, one, one) == [(ErrorCode.INVALID_REQUEST, message)]
    assert not cluster.written


def test_a_request_may_only_be_validated() -> None:
    cluster = Deciding()
    assert alter(cluster, entry({"user": "v"}, {"producer_byte_rate": 1.0}), validate_only=True) == [(0, None)]
    assert not cluster.written
