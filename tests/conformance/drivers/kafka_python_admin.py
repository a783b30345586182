"""kafka-python's admin client as driver operations."""

# mypy: disable-error-code="import-untyped,no-any-return"

from __future__ import annotations

import re
from collections.abc import Mapping

import kafka.errors
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import AbortTransactionSpec, AlterConfigOp, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.structs import OffsetAndMetadata

from moldau.protocol.errors import ErrorCode
from tests.conformance.outcome import Refused

SPECIAL_OFFSETS = {
    "earliest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "last-stable": OffsetSpec.LATEST,
    "max-timestamp": OffsetSpec.MAX_TIMESTAMP,
}


_CODES = frozenset(int(code) for code in ErrorCode)


def refusal(error: kafka.errors.KafkaError) -> Refused:
    code = getattr(error, "errno", None)
    name = ErrorCode(code).name if isinstance(code, int) and code in _CODES else type(error).__name__
    return Refused(name, str(error))


def check(error: type[kafka.errors.KafkaError] | kafka.errors.KafkaError) -> None:
    """Some calls return an error class or an error if others raise."""
    if getattr(error, "errno", 0) != 0:
        raise refusal(error if isinstance(error, Exception) else error())


def check_text(result: str) -> None:
    """Changes of configurations answer "OK", or the error's text."""
    found = re.match(r"\[Error (-?\d+)\]", result)
    if found:
        raise Refused(ErrorCode(int(found[1])).name, result)


class _Admin:
    """The admin client, whose errors become refusals."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def __getattr__(self, name: str) -> object:
        call = getattr(self._admin, name)

        def guarded(*args: object, **named: object) -> object:
            try:
                return call(*args, **named)
            except kafka.errors.KafkaError as error:
                raise refusal(error) from None

        return guarded


class KafkaPythonAdmin:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin: KafkaAdminClient = _Admin(bootstrap)

    def create_topic(self, topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> object:
        wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": configs}
        self._admin.create_topics({topic: wanted})
        return None

    def delete_topic(self, topic: str) -> object:
        self._admin.delete_topics([topic])
        return None

    def list_topics(self) -> object:
        return sorted(self._admin.list_topics())

    def describe_topic(self, topic: str) -> object:
        (found,) = self._admin.describe_topics([topic])
        if found["error_code"]:
            raise Refused(ErrorCode(found["error_code"]).name)
        return {
            "internal": found["is_internal"],
            "has id": bool(found["topic_id"]),
            "partitions": [
                {
                    "id": partition["partition_index"],
                    "leader": partition["leader_id"],
                    "replicas": partition["replica_nodes"],
                    "isr": partition["isr_nodes"],
                }
                for partition in sorted(found["partitions"], key=lambda each: each["partition_index"])
            ],
        }

    def create_partitions(self, topic: str, total: int) -> object:
        self._admin.create_partitions({topic: total})
        return None

    def delete_records(self, topic: str, partition: int, before_offset: int) -> object:
        place = TopicPartition(topic, partition)
        return self._admin.delete_records({place: before_offset})[place]["low_watermark"]

    def describe_configs(self, kind: str, name: str) -> object:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        found: Mapping[str, dict[str, object]] = self._admin.describe_configs([resource], config_filter="all")[kind][
            name
        ]
        return {
            key: {
                "value": entry["value"],
                "source": entry["config_source"],
                "type": entry["config_type"],
                "read only": entry["read_only"],
                "sensitive": entry["is_sensitive"],
            }
            for key, entry in found.items()
        }

    def incremental_alter(self, kind: str, name: str, changes: list[tuple[str, str, str]]) -> object:
        wanted = {key: (AlterConfigOp[operation.upper()], value) for operation, key, value in changes}
        resource = ConfigResource(ConfigResourceType[kind.upper()], name, wanted)
        result = self._admin.alter_configs([resource], raise_on_unknown=False, incremental=True)
        check_text(result[kind][name])
        return None

    def describe_cluster(self) -> object:
        found = self._admin.describe_cluster()
        return {
            "nodes": sorted(node["broker_id"] for node in found["brokers"]),
            "controller": found["controller_id"],
            "has cluster id": bool(found["cluster_id"]),
        }

    def list_groups(self) -> object:
        return sorted(group["group_id"] for group in self._admin.list_groups())

    def describe_group(self, group: str) -> object:
        found = self._admin.describe_groups([group])[group]
        return {
            "state": str(found["group_state"]).upper(),
            "protocol": found["protocol_data"],
            "members": [{"instance": member["group_instance_id"]} for member in found["members"]],
        }

    def delete_group(self, group: str) -> object:
        results = self._admin.delete_groups([group])
        for _, error in results.items() if isinstance(results, dict) else results:
            check_text(error) if isinstance(error, str) else check(error)
        return None

    def alter_offsets(self, group: str, offsets: list[tuple[str, int, int]]) -> object:
        wanted = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for topic, partition, offset in offsets
        }
        for error in self._admin.alter_group_offsets(group, wanted).values():
            check(error)
        return None

    def fetch_offsets(self, group: str) -> object:
        found = self._admin.list_group_offsets(group)[group]
        return [[place.topic, place.partition, offset.offset] for place, offset in found.items()]

    def delete_offsets(self, group: str, topic: str, partition: int) -> object:
        for error in self._admin.delete_group_offsets(group, [TopicPartition(topic, partition)]).values():
            check(error)
        return None

    def list_offsets(self, topic: str, partition: int, at: str | int) -> object:
        place = TopicPartition(topic, partition)
        spec = SPECIAL_OFFSETS[at] if isinstance(at, str) else at
        isolation = "read_committed" if at == "last-stable" else "read_uncommitted"
        found = self._admin.list_partition_offsets({place: spec}, isolation_level=isolation)[place]
        return -1 if found is None else found.offset

    def describe_log_dirs(self, topic: str) -> object:
        replicas = [
            {"partition": partition["partition_index"], "size": partition["partition_size"]}
            | {"lag": partition["offset_lag"], "future": partition["is_future_key"]}
            for broker in self._admin.describe_log_dirs([topic])
            for directory in (broker["log_dirs"] if "log_dirs" in broker else broker["results"])
            for found in directory["topics"]
            for partition in found["partitions"]
        ]
        return sorted(replicas, key=lambda each: each["partition"])

    def describe_producers(self, topic: str, partition: int) -> object:
        place = TopicPartition(topic, partition)
        return [
            {
                "epoch": state.producer_epoch,
                "last sequence": state.last_sequence,
                "coordinator epoch": state.coordinator_epoch,
                "transaction": state.current_transaction_start_offset,
            }
            for state in self._admin.describe_producers([place])[place].active_producers
        ]

    def describe_transaction(self, id: str) -> object:
        found = self._admin.describe_transactions([id])[id]
        return {
            "state": found.state.value,
            "epoch": found.producer_epoch,
            "timeout ms": found.transaction_timeout_ms,
            "has begun": found.transaction_start_time_ms > 0,
            "partitions": sorted(place.partition for place in found.topic_partitions),
        }

    def list_transactions(self, states: list[str]) -> object:
        found = self._admin.list_transactions(state_filters=states or None).values()
        return sorted([each.transactional_id, each.state.value] for listed in found for each in listed)

    def abort_transaction(self, topic: str, partition: int) -> object:
        """Ends the transaction that is open in a partition without its coordinator."""
        place = TopicPartition(topic, partition)
        for state in self._admin.describe_producers([place])[place].active_producers:
            if state.current_transaction_start_offset >= 0:
                self._admin.abort_transaction(
                    AbortTransactionSpec(place, state.producer_id, state.producer_epoch, state.coordinator_epoch)
                )
        return None

    def describe_quorum(self) -> object:
        found = self._admin.describe_metadata_quorum()
        (topic,) = found["topics"]
        (partition,) = topic["partitions"]
        return {
            "topic": topic["topic_name"],
            "leader": partition["leader_id"],
            "voters": [voter["replica_id"] for voter in partition["current_voters"]],
            "observers": len(partition["observers"]),
        }

    def describe_features(self) -> object:
        found: Mapping[str, Mapping[str, object]] = self._admin.describe_features()
        return {
            name: {level: feature[level] for level in ("supported", "finalized") if level in feature}
            for name, feature in sorted(found.items())
        }

    def list_config_resources(self) -> object:
        found = self._admin.list_config_resources()
        return [[kind.upper(), name] for kind, names in found.items() for name in names]
