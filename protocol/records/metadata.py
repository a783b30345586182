"""The records of the metadata log. The `key` of each declaration is the record type."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import (
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt16,
    Uuid,
    empty,
    message,
    nullable,
    since,
    struct,
    tag,
)


@message(key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    name: str
    feature_level: Int16


@struct
class BrokerEndpoint:
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


@struct
class BrokerFeature:
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    broker_id: Int32
    is_migrating_zk_broker: Annotated[bool, since(2)] = False
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint] = empty()
    features: list[BrokerFeature] = empty()
    rack: Annotated[str | None, nullable()] = ""
    fenced: bool = True
    in_controlled_shutdown: Annotated[bool, since(1)] = False
    log_dirs: Annotated[list[Uuid], since(3), tag(0)] = empty()
    cordoned_log_dirs: Annotated[list[Uuid] | None, since(4), nullable(4), tag(1)] = None


@message(key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    broker_id: Int32
    broker_epoch: Int64


@message(key=29, versions="0", flexible="0+")
class UnregisterControllerRecord:
    controller_id: Int32


@message(key=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    broker_id: Int32
    broker_epoch: Int64
    fenced: Annotated[Int8, tag(0)] = 0
    in_controlled_shutdown: Annotated[Int8, since(1), tag(1)] = 0
    log_dirs: Annotated[list[Uuid], since(2), tag(2)] = empty()
    cordoned_log_dirs: Annotated[list[Uuid] | None, since(3), nullable(3), tag(3)] = None


@message(key=7, versions="0", flexible="0+")
class FenceBrokerRecord:
    id: Int32
    epoch: Int64


@message(key=8, versions="0", flexible="0+")
class UnfenceBrokerRecord:
    id: Int32
    epoch: Int64


@struct
class ControllerEndpoint:
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


@struct
class ControllerFeature:
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    end_points: list[ControllerEndpoint] = empty()
    features: list[ControllerFeature] = empty()


@message(key=2, versions="0", flexible="0+")
class TopicRecord:
    name: str
    topic_id: Uuid


@message(key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: list[Int32] = empty()
    isr: list[Int32] = empty()
    removing_replicas: list[Int32] = empty()
    adding_replicas: list[Int32] = empty()
    leader: Int32 = -1
    leader_recovery_state: Annotated[Int8, tag(0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[list[Uuid], since(1)] = empty()
    eligible_leader_replicas: Annotated[list[Int32] | None, since(2), nullable(2), tag(1)] = None
    last_known_elr: Annotated[list[Int32] | None, since(2), nullable(2), tag(2)] = None


@message(key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    partition_id: Int32 = -1
    topic_id: Uuid
    isr: Annotated[list[Int32] | None, nullable(), tag(0)] = None
    leader: Annotated[Int32, tag(1)] = -2
    replicas: Annotated[list[Int32] | None, nullable(), tag(2)] = None
    removing_replicas: Annotated[list[Int32] | None, nullable(), tag(3)] = None
    adding_replicas: Annotated[list[Int32] | None, nullable(), tag(4)] = None
    leader_recovery_state: Annotated[Int8, tag(5)] = -1
    directories: Annotated[list[Uuid] | None, since(1), nullable(1), tag(8)] = None
    eligible_leader_replicas: Annotated[list[Int32] | None, since(2), nullable(2), tag(6)] = None
    last_known_elr: Annotated[list[Int32] | None, since(2), nullable(2), tag(7)] = None


@message(key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    topic_id: Uuid


@message(key=28, versions="0", flexible="0+")
class ClearElrRecord:
    topic_name: str


@message(key=4, versions="0", flexible="0+")
class ConfigRecord:
    resource_type: Int8
    resource_name: str
    name: str
    value: Annotated[str | None, nullable()] = ""


@struct
class EntityData:
    entity_type: str
    entity_name: Annotated[str | None, nullable()] = ""


@message(key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    entity: list[EntityData] = empty()
    key: str
    value: Float64
    remove: bool


@message(key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64


@message(key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    id: Uuid
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message(key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    id: Uuid


@message(key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    name: str
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


@message(key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    name: str
    mechanism: Int8


@message(key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    owner: str
    requester: str
    renewers: list[str] = empty()
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: str


@message(key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    token_id: str


@message(key=20, versions="0", flexible="0+")
class NoOpRecord:
    pass


@message(key=23, versions="0", flexible="0+")
class BeginTransactionRecord:
    name: Annotated[str | None, nullable(), tag(0)] = None


@message(key=24, versions="0", flexible="0+")
class EndTransactionRecord:
    pass


@message(key=25, versions="0", flexible="0+")
class AbortTransactionRecord:
    reason: Annotated[str | None, nullable(), tag(0)] = None


@message(key=21, versions="0", flexible="0+")
class ZkMigrationStateRecord:
    zk_migration_state: Int8
