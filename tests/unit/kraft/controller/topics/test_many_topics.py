"""CreateTopics of many topics: decided in slices, each of which holds whole topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from moldau.kraft.controller.controller import Controller
from moldau.kraft.controller.topics.topic_creation import PARTITIONS_AT_ONCE
from moldau.kraft.image.metadata_image import Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.image.security.client_quotas import record_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.records.metadata import PartitionRecord, RegisterBrokerRecord, TopicRecord, UnfenceBrokerRecord
from moldau.security.principal import NODE, Principal, Requester
from moldau.security.quotas.entity import CONTROLLER_MUTATION_RATE, QuotaEntity
from tests.support.controller_scribe import SETTINGS, FewRules

OLD = Requester(Principal("User", "alice"), "app", is_strict=False)
"""A client that does not know THROTTLING_QUOTA_EXCEEDED: it is served and throttled."""


class Described(FewRules):
    """Rules that describe a topic by its own settings."""

    described = 0

    def describe_topic(self, settings: Mapping[str, str]) -> Sequence[CreatableTopicConfigs]:
        self.described += 1
        return [
            CreatableTopicConfigs(name=name, value=value, read_only=False, is_sensitive=False)
            for name, value in settings.items()
        ]


class Creating:
    """A controller with one broker."""

    def __init__(self) -> None:
        self._next_id = 1000
        self.rules = Described()
        settings = SETTINGS._replace(new_uuid=self._new_uuid, config_rules=self.rules)
        self.controller = Controller(Replay(), settings, 0)
        broker = RegisterBrokerRecord(
            broker_id=1, incarnation_id=bytes(16), broker_epoch=1, rack=None, fenced=True, end_points=[], features=[]
        )
        self.replay([broker, UnfenceBrokerRecord(id=1, epoch=1)])

    def _new_uuid(self) -> bytes:
        self._next_id += 1
        return self._next_id.to_bytes(16, "big")

    def replay(self, records: Sequence[object]) -> None:
        self.controller.replay(records, Provenance(), 0)

    def create(
        self, topics: list[CreatableTopic], requester: Requester = NODE, *, validate_only: bool = False
    ) -> tuple[list[list[object]], CreateTopicsResponse]:
        """The batches, each replayed before the next one is decided, and the reply after the last one."""
        request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
        decision = self.controller.step(request, 0, requester)
        batches = []
        for records in decision.batches():
            self.replay(records)
            batches.append(list(records))
        return batches, cast("CreateTopicsResponse", decision.reply)


def topic(name: str, partitions: int = 1, **configs: str) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)


def partitions_in(records: Sequence[object]) -> int:
    return sum(isinstance(each, PartitionRecord) for each in records)


def test_no_slice_goes_on_after_a_number_of_partitions() -> None:
    batches, reply = Creating().create([topic(f"t{number}", 3) for number in range(100)])
    assert [each.error_code for each in reply.topics] == [0] * 100
    assert sum(map(partitions_in, batches)) == 300
    assert all(partitions_in(each) < PARTITIONS_AT_ONCE + 3 for each in batches)
    assert len(batches) == -(-300 // (PARTITIONS_AT_ONCE + 2))


def test_the_records_of_a_topic_are_in_one_batch() -> None:
    batches, _ = Creating().create([topic("few"), topic("many", 10 * PARTITIONS_AT_ONCE), topic("last")])
    places: dict[bytes, int] = {}
    for place, records in enumerate(batches):
        for each in records:
            if isinstance(each, TopicRecord | PartitionRecord):
                assert places.setdefault(each.topic_id, place) == place
    assert len(places) == 3 and len(batches) == 2


def test_topics_are_compared_with_those_of_earlier_slices() -> None:
    names = [f"t{number}" for number in range(2 * PARTITIONS_AT_ONCE)]
    _, reply = Creating().create([*map(topic, ["a.b", *names, "a_b", "twice", "twice"])])
    errors = {each.name: each.error_code for each in reply.topics if each.error_code}
    assert errors == {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION, "twice": ErrorCode.INVALID_REQUEST}


def test_refused_topics_end_a_slice_too_and_only_validating_writes_nothing() -> None:
    refused = [topic(f"/{number}") for number in range(5 * PARTITIONS_AT_ONCE + 1)]
    assert len(Creating().create(refused)[0]) > 5
    batches, reply = Creating().create([topic(f"t{number}") for number in range(50)], validate_only=True)
    assert len(batches) > 2 and not any(batches)
    assert len(reply.topics) == 50


def test_the_reply_tells_the_throttle_time_of_all_slices() -> None:
    creating = Creating()
    creating.replay([record_of(QuotaEntity.from_parts([("user", "alice")]), CONTROLLER_MUTATION_RATE, 1.0)])
    _, reply = creating.create([topic(f"t{number}") for number in range(44)], OLD)
    assert reply.throttle_time_ms == 33_000, "44 partitions, of which the bucket held eleven"


def test_each_topic_is_checked_and_described_by_its_own_settings() -> None:
    creating = Creating()
    topics = [topic("a", retention_ms="4"), topic("b"), topic("c", retention_ms="4"), topic("d", foo="1")]
    _, reply = creating.create([*topics, topic("e", retention_ms="5")])
    told = {each.name: [(one.name, one.value) for one in each.configs or ()] for each in reply.topics}
    assert told == {
        "a": [("retention.ms", "4")],
        "b": [],
        "c": [("retention.ms", "4")],
        "d": [],
        "e": [("retention.ms", "5")],
    }
    assert [each.error_code for each in reply.topics] == [0, 0, 0, ErrorCode.INVALID_CONFIG, 0]
    assert creating.rules.described == 3, "the same settings are described once"
