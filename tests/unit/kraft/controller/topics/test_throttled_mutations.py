"""Quotas of controller mutations: what the controller refuses, and for how long it throttles (KIP-599)."""

from __future__ import annotations

from typing import cast

from moldau.kraft.controller.controller import Controller
from moldau.kraft.image.metadata_image import Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.image.security.client_quotas import record_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.protocol.records.metadata import RegisterBrokerRecord, UnfenceBrokerRecord
from moldau.protocol.schema import ZERO_UUID
from moldau.security.principal import NODE, Principal, Requester
from moldau.security.quotas.entity import CONTROLLER_MUTATION_RATE, QuotaEntity
from tests.support.controller_scribe import SETTINGS

ALICE = Requester(Principal("User", "alice"), "app", is_strict=True)
OLD = Requester(Principal("User", "alice"), "app", is_strict=False)
RATE = 1.0
"""Partitions a second: a full bucket holds eleven."""


class Mutating:
    """A controller with one broker and a quota."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._next_id = 1000
        self._controller = Controller(Replay(), SETTINGS._replace(new_uuid=self._new_uuid), 0)
        broker = RegisterBrokerRecord(
            broker_id=1, incarnation_id=bytes(16), broker_epoch=1, rack=None, fenced=True, end_points=[], features=[]
        )
        self._replay([broker, UnfenceBrokerRecord(id=1, epoch=1)])
        self.set_quota(RATE)

    def set_quota(self, rate: float | None) -> None:
        self._replay([record_of(QuotaEntity.from_parts([("user", "alice")]), CONTROLLER_MUTATION_RATE, rate)])

    def _new_uuid(self) -> bytes:
        self._next_id += 1
        return self._next_id.to_bytes(16, "big")

    def _replay(self, records: list[object]) -> None:
        self._controller.replay(records, Provenance(), self.now_ms)

    def _ask(self, request: object, requester: Requester) -> object:
        decision = self._controller.step(request, self.now_ms, requester)
        self._replay(list(decision.records))
        return decision.reply

    def create(self, name: str, partitions: int, requester: Requester = ALICE) -> tuple[int, int]:
        """The error of the topic, and the throttle time in ms."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        reply = cast("CreateTopicsResponse", self._ask(CreateTopicsRequest(topics=[topic]), requester))
        return reply.topics[0].error_code, reply.throttle_time_ms

    def grow(self, name: str, count: int) -> tuple[int, int]:
        wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)
        reply = cast("CreatePartitionsResponse", self._ask(request, ALICE))
        return reply.results[0].error_code, reply.throttle_time_ms

    def delete(self, name: str) -> tuple[int, int]:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=1000)
        reply = cast("DeleteTopicsResponse", self._ask(request, ALICE))
        return reply.responses[0].error_code, reply.throttle_time_ms


THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_client_may_spend_more_than_there_is_once() -> None:
    controller = Mutating()
    assert controller.create("a", 14) == (0, 0), "the bucket of 11 has debts of 3 now"
    assert controller.create("b", 1) == (THROTTLED, 3000)
    controller.now_ms = 2999
    assert controller.create("b", 1)[0] == THROTTLED
    controller.now_ms = 3000
    assert controller.create("b", 1) == (0, 0)


def test_growing_and_deleting_count_partitions_too() -> None:
    controller = Mutating()
    assert controller.create("a", 5) == (0, 0)
    assert controller.grow("a", 14) == (0, 0), "nine more: 3 of debts"
    assert controller.grow("a", 15) == (THROTTLED, 3000)
    assert controller.delete("a") == (THROTTLED, 3000)
    controller.now_ms = 3000
    assert controller.delete("a") == (0, 0)
    assert controller.create("b", 1) == (THROTTLED, 14_000)


def test_what_is_refused_for_another_reason_does_not_count() -> None:
    controller = Mutating()
    assert controller.create("a", 11) == (0, 0)
    assert controller.create("a", 11) == (ErrorCode.TOPIC_ALREADY_EXISTS, 0)
    assert controller.create("b", 1) == (0, 0)


def test_an_older_client_is_served_and_throttled() -> None:
    controller = Mutating()
    assert controller.create("a", 14, OLD) == (0, 3000)
    assert controller.create("b", 1, OLD) == (0, 4000)


def test_others_are_not_bounded_and_a_quota_may_change_or_go() -> None:
    controller = Mutating()
    assert controller.create("a", 20) == (0, 0)
    assert controller.create("b", 20, Requester(Principal("User", "bob"), "app", is_strict=True)) == (0, 0)
    assert controller.create("c", 20, NODE) == (0, 0)
    controller.set_quota(9.0)
    assert controller.create("d", 1) == (THROTTLED, 1000), "debts of 9 stay"
    controller.set_quota(None)
    assert controller.create("d", 1) == (0, 0)
