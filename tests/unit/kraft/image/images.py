"""Images made of records."""

from __future__ import annotations

from collections.abc import Iterable

from moldau.kraft.image.metadata_image import EMPTY_IMAGE, MetadataDelta, MetadataImage, Provenance
from moldau.protocol.records import metadata as records


def uuid(number: int) -> bytes:
    return number.to_bytes(16, "big")


def image_of(log: Iterable[object], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(base)
    for record in log:
        delta.replay(record)
    return delta.apply(base.provenance)


def topic(name: str, number: int, partitions: int = 1) -> list[object]:
    return [
        records.TopicRecord(name=name, topic_id=uuid(number)),
        *(
            records.PartitionRecord(
                partition_id=index,
                topic_id=uuid(number),
                replicas=[1, 2],
                isr=[1, 2],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[uuid(1001), uuid(1002)],
            )
            for index in range(partitions)
        ),
    ]


def config(name: str, key: str, value: str | None, resource_type: int = 2) -> object:
    return records.ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)


def broker(broker_id: int, epoch: int = 5) -> object:
    return records.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=uuid(77),
        broker_epoch=epoch,
        end_points=[records.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[records.BrokerFeature(name="metadata.version", min_supported_version=25, max_supported_version=30)],
        rack="r1",
        log_dirs=[uuid(1000 + broker_id)],
        cordoned_log_dirs=[],
    )


def everything() -> list[object]:
    """One record at least of every type that leaves something behind."""
    return [
        records.FeatureLevelRecord(name="metadata.version", feature_level=30),
        records.FeatureLevelRecord(name="group.version", feature_level=1),
        records.ZkMigrationStateRecord(zk_migration_state=0),
        broker(1),
        records.UnfenceBrokerRecord(id=1, epoch=5),
        broker(2),
        records.BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5, fenced=-1, log_dirs=[uuid(1), uuid(2)]),
        records.FenceBrokerRecord(id=2, epoch=5),
        broker(3),
        records.UnregisterBrokerRecord(broker_id=3, broker_epoch=5),
        records.RegisterControllerRecord(
            controller_id=1,
            incarnation_id=uuid(8),
            zk_migration_ready=False,
            end_points=[records.ControllerEndpoint(name="CONTROLLER", host="h", port=1, security_protocol=0)],
            features=[
                records.ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)
            ],
        ),
        *topic("orders", 201, 3),
        *topic("gone", 202),
        config("orders", "retention.ms", "5"),
        config("gone", "retention.ms", "6"),
        config("", "log.cleaner.threads", "2", resource_type=4),
        records.RemoveTopicRecord(topic_id=uuid(202)),
        records.PartitionChangeRecord(partition_id=1, topic_id=uuid(201), isr=[2], leader=2),
        records.PartitionChangeRecord(
            partition_id=2,
            topic_id=uuid(201),
            eligible_leader_replicas=[1],
            last_known_elr=[2],
            leader_recovery_state=1,
        ),
        records.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=2000),
        records.ClientQuotaRecord(
            entity=[records.EntityData(entity_type="user", entity_name=None)], key="rate", value=1.5, remove=False
        ),
        records.AccessControlEntryRecord(
            id=uuid(301),
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        ),
        records.UserScramCredentialRecord(
            name="a", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        records.DelegationTokenRecord(
            owner="User:a",
            requester="User:b",
            issue_timestamp=1,
            max_timestamp=2,
            expiration_timestamp=3,
            token_id="id",
        ),
        records.NoOpRecord(),
    ]


def provenance(end_offset: int) -> Provenance:
    return Provenance(end_offset, 1, 1000)
