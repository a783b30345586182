"""confluent-kafka's admin client as driver operations."""

# mypy: disable-error-code="attr-defined,no-any-return,no-untyped-call"

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.conformance.drivers.librdkafka import error_name
from tests.conformance.outcome import Refused

K = TypeVar("K")
V = TypeVar("V")

KINDS = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER, "group": ResourceType.GROUP}
OPERATIONS = {
    "set": AlterConfigOpType.SET,
    "delete": AlterConfigOpType.DELETE,
    "append": AlterConfigOpType.APPEND,
    "subtract": AlterConfigOpType.SUBTRACT,
}


def settled(future: Future[V]) -> V:
    try:
        return future.result(timeout=70)
    except KafkaException as error:
        raise Refused(error_name(error.args[0].name()), error.args[0].str()) from None


def only(futures: Mapping[K, Future[V]]) -> V:
    (future,) = futures.values()
    return settled(future)


class ConfluentAdmin:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create_topic(self, topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> object:
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=configs)
        only(self._admin.create_topics([wanted], operation_timeout=30))
        return None

    def delete_topic(self, topic: str) -> object:
        only(self._admin.delete_topics([topic], operation_timeout=30))
        return None

    def list_topics(self) -> object:
        return sorted(self._admin.list_topics(timeout=60).topics)

    def describe_topic(self, topic: str) -> object:
        found = only(self._admin.describe_topics(TopicCollection([topic])))
        return {
            "internal": found.is_internal,
            "has id": str(found.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA",
            "partitions": [
                {
                    "id": partition.id,
                    "leader": partition.leader.id if partition.leader else None,
                    "replicas": [node.id for node in partition.replicas],
                    "isr": [node.id for node in partition.isr],
                }
                for partition in found.partitions
            ],
        }

    def create_partitions(self, topic: str, total: int) -> object:
        only(self._admin.create_partitions([NewPartitions(topic, total)]))
        return None

    def delete_records(self, topic: str, partition: int, before_offset: int) -> object:
        return only(self._admin.delete_records([TopicPartition(topic, partition, before_offset)])).low_watermark

    def describe_configs(self, kind: str, name: str) -> object:
        found = only(self._admin.describe_configs([ConfigResource(KINDS[kind], name)]))
        return {
            entry.name: {
                "value": entry.value,
                "source": ConfigSource(entry.source).name,
                "read only": bool(entry.is_read_only),
                "sensitive": bool(entry.is_sensitive),
            }
            for entry in found.values()
        }

    def alter_configs(self, kind: str, name: str, configs: dict[str, str]) -> object:
        only(self._admin.alter_configs([ConfigResource(KINDS[kind], name, set_config=configs)]))
        return None

    def incremental_alter(self, kind: str, name: str, changes: list[tuple[str, str, str]]) -> object:
        entries = [
            ConfigEntry(key, value, incremental_operation=OPERATIONS[operation]) for operation, key, value in changes
        ]
        resource = ConfigResource(KINDS[kind], name, incremental_configs=entries)
        only(self._admin.incremental_alter_configs([resource]))
        return None

    def describe_cluster(self) -> object:
        found = settled(self._admin.describe_cluster())
        return {
            "nodes": [node.id for node in found.nodes],
            "controller": found.controller.id if found.controller else None,
            "has cluster id": bool(found.cluster_id),
        }

    def list_groups(self) -> object:
        return sorted(group.group_id for group in settled(self._admin.list_consumer_groups()).valid)

    def describe_group(self, group: str) -> object:
        found = only(self._admin.describe_consumer_groups([group]))
        return {
            "state": found.state.name,
            "protocol": found.partition_assignor,
            "members": [
                {
                    "instance": member.group_instance_id,
                    "partitions": len(member.assignment.topic_partitions) if member.assignment else 0,
                }
                for member in found.members
            ],
        }

    def delete_group(self, group: str) -> object:
        only(self._admin.delete_consumer_groups([group]))
        return None

    def alter_offsets(self, group: str, offsets: list[tuple[str, int, int]]) -> object:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*offset) for offset in offsets])
        for partition in only(self._admin.alter_consumer_group_offsets([wanted])).topic_partitions:
            if partition.error is not None:
                raise Refused(error_name(partition.error.name()))
        return None

    def fetch_offsets(self, group: str) -> object:
        found = only(self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return [[partition.topic, partition.partition, partition.offset] for partition in found.topic_partitions]

    def list_offsets(self, topic: str, partition: int, at: str | int) -> object:
        special = {
            "earliest": OffsetSpec.earliest,
            "latest": OffsetSpec.latest,
            "last-stable": OffsetSpec.latest,
            "max-timestamp": OffsetSpec.max_timestamp,
        }
        spec = OffsetSpec.for_timestamp(at) if isinstance(at, int) else special[at]()
        isolation = IsolationLevel.READ_COMMITTED if at == "last-stable" else IsolationLevel.READ_UNCOMMITTED
        wanted = {TopicPartition(topic, partition): spec}
        return only(self._admin.list_offsets(wanted, isolation_level=isolation)).offset
