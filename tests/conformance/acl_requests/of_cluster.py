"""Requests about the cluster: ACLs, configurations, quotas, credentials, replicas and the quorum."""

from __future__ import annotations

from moldau.protocol.messages import alter_configs, incremental_alter_configs
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from moldau.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState
from moldau.protocol.messages.alter_partition import PartitionData as InSyncPartition
from moldau.protocol.messages.alter_partition import TopicData as InSyncTopic
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from moldau.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
)
from moldau.protocol.messages.assign_replicas_to_dirs import PartitionData as PlacedPartition
from moldau.protocol.messages.assign_replicas_to_dirs import TopicData as PlacedTopic
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from moldau.protocol.messages.describe_acls import DescribeAclsRequest
from moldau.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from moldau.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.list_config_resources import ListConfigResourcesRequest
from moldau.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.acl_requests.asked import (
    OTHER_GROUP,
    TOPICS,
    UNKNOWN_BROKER,
    Ids,
    Requests,
    in_versions,
    made,
)

TOPIC, BROKER, LOGGER, METRICS, GROUPS = 2, 4, 8, 16, 32
"""Kinds of resources that have configurations."""
DESCRIBED = (
    *((TOPIC, name) for name in TOPICS),
    (BROKER, "1"),
    (LOGGER, "1"),
    (METRICS, "cm"),
    (GROUPS, OTHER_GROUP),
)
ALTERED = (
    (TOPIC, "hidden", "retention.ms"),
    (TOPIC, "none", "retention.ms"),
    (BROKER, "1", "log.retention.ms"),
    (BROKER, "", "log.retention.ms"),
    (METRICS, "cm", "interval.ms"),
    (GROUPS, OTHER_GROUP, "consumer.session.timeout.ms"),
)


def requests(ids: Ids) -> Requests:
    yield from acls()
    yield from configurations()
    yield from replicas()
    yield from users()
    yield from cluster()


def acls() -> Requests:
    nothing = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "nope",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield from in_versions(1, 3, DescribeAclsRequest, **nothing)
    pattern = {"resource_type": TOPIC, "resource_name": "a", "resource_pattern_type": 3}
    creation = made(AclCreation, principal="User:x", host="*", operation=3, permission_type=3, **pattern)
    yield from in_versions(1, 3, CreateAclsRequest, creations=[creation])
    yield from in_versions(1, 3, DeleteAclsRequest, filters=[made(DeleteAclsFilter, **nothing)])


def configurations() -> Requests:
    keys = ["retention.ms", "log.retention.ms"]
    described = [
        made(DescribeConfigsResource, resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name in DESCRIBED
    ]
    yield from in_versions(1, 4, DescribeConfigsRequest, resources=described)
    setting = made(alter_configs.AlterableConfig, name="retention.ms", value="1000")
    replaced = [
        made(alter_configs.AlterConfigsResource, resource_type=TOPIC, resource_name=name, configs=[setting])
        for name in TOPICS[1:]
    ]
    yield from in_versions(0, 2, alter_configs.AlterConfigsRequest, resources=replaced, validate_only=True)
    for kind, name, key in (*ALTERED, (LOGGER, "1", "root")):
        value = "INFO" if kind == LOGGER else "100000"
        change = made(incremental_alter_configs.AlterableConfig, name=key, config_operation=0, value=value)
        resource = made(
            incremental_alter_configs.AlterConfigsResource, resource_type=kind, resource_name=name, configs=[change]
        )
        yield from in_versions(
            0,
            1,
            incremental_alter_configs.IncrementalAlterConfigsRequest,
            resources=[resource],
            validate_only=True,
        )
    yield from in_versions(0, 1, ListConfigResourcesRequest)


def replicas() -> Requests:
    moved = [made(AlterReplicaLogDirTopic, name=name, partitions=[0]) for name in TOPICS]
    place = made(AlterReplicaLogDir, path="/nope", topics=moved)
    yield from in_versions(1, 2, AlterReplicaLogDirsRequest, dirs=[place])
    yield from in_versions(1, 4, DescribeLogDirsRequest, topics=None)
    elected = [made(TopicPartitions, topic="orders", partitions=[0])]
    yield from in_versions(0, 2, ElectLeadersRequest, topic_partitions=elected, timeout_ms=1000)
    yield from in_versions(0, 1, AlterPartitionReassignmentsRequest, timeout_ms=1000, topics=[])
    wishes = ([1], [UNKNOWN_BROKER], None)
    partitions = [
        made(ReassignablePartition, partition_index=index, replicas=each) for index, each in enumerate(wishes)
    ]
    reassigned = [made(ReassignableTopic, name=name, partitions=partitions) for name in TOPICS]
    yield from in_versions(0, 1, AlterPartitionReassignmentsRequest, timeout_ms=1000, topics=reassigned)
    yield from in_versions(0, 0, ListPartitionReassignmentsRequest, timeout_ms=1000, topics=None)


def users() -> Requests:
    yield from in_versions(0, 1, DescribeClientQuotasRequest, components=[], strict=False)
    entity = made(EntityData, entity_type="user", entity_name="u")
    change = made(OpData, key="producer_byte_rate", value=1.0, remove=False)
    entry = made(RequestEntryData, entity=[entity], ops=[change])
    yield from in_versions(0, 1, AlterClientQuotasRequest, entries=[entry], validate_only=True)
    # Of all users, a request that is denied ends in an error of Apache Kafka's own, which closes the connection.
    described = [made(UserName, name="u")]
    yield from in_versions(0, 0, DescribeUserScramCredentialsRequest, users=described)
    deletion = made(ScramCredentialDeletion, name="u", mechanism=1)
    yield from in_versions(0, 0, AlterUserScramCredentialsRequest, deletions=[deletion], upsertions=[])


def cluster() -> Requests:
    partition = made(PartitionData, partition_index=0)
    log = made(TopicData, topic_name="__cluster_metadata", partitions=[partition])
    yield from in_versions(0, 2, DescribeQuorumRequest, topics=[log])
    update = made(FeatureUpdateKey, feature="nope", max_version_level=1, upgrade_type=1)
    yield from in_versions(0, 2, UpdateFeaturesRequest, timeout_ms=1000, feature_updates=[update], validate_only=True)
    yield from in_versions(0, 2, DescribeClusterRequest, include_cluster_authorized_operations=True)
    yield from in_versions(0, 0, UnregisterBrokerRequest, broker_id=77)
    voter = {"cluster_id": "x", "voter_id": 5, "voter_directory_id": b"\1" * 16}
    yield from in_versions(0, 0, AddRaftVoterRequest, timeout_ms=100, listeners=[], **voter)
    yield from in_versions(0, 0, RemoveRaftVoterRequest, **voter)


def of_brokers(ids: Ids, broker_epoch: int) -> Requests:
    """What brokers ask of the controller: one that is not registered, the registered one in an epoch that has passed,
    and in its epoch. `broker_epoch` is that of broker 1."""
    for broker, epoch in ((UNKNOWN_BROKER, 5), (UNKNOWN_BROKER, -1), (1, 0), (1, broker_epoch)):
        sender = {"broker_id": broker, "broker_epoch": epoch}
        yield from in_versions(2, 3, AlterPartitionRequest, topics=[], **sender)
        for leader_epoch, partition_epoch in ((0, 0), (1, 0), (0, 1), (-1, 0)):
            for members in ([1], [1, UNKNOWN_BROKER], [UNKNOWN_BROKER], []):
                in_sync = made(
                    InSyncPartition,
                    partition_index=0,
                    leader_epoch=leader_epoch,
                    partition_epoch=partition_epoch,
                    new_isr=members,
                    new_isr_with_epochs=[made(BrokerState, broker_id=each, broker_epoch=epoch) for each in members],
                )
                topics = [made(InSyncTopic, topic_id=ids.of(name), partitions=[in_sync]) for name in TOPICS]
                yield from in_versions(2, 3, AlterPartitionRequest, topics=topics, **sender)
        placed = [made(PlacedTopic, topic_id=ids.of("none"), partitions=[made(PlacedPartition, partition_index=0)])]
        directory = made(DirectoryData, id=b"\1" * 16, topics=placed)
        yield from in_versions(0, 0, AssignReplicasToDirsRequest, directories=[directory], **sender)
        if epoch != broker_epoch:
            yield from in_versions(0, 0, AllocateProducerIdsRequest, **sender)
            yield from in_versions(0, 2, BrokerHeartbeatRequest, want_fence=False, want_shut_down=False, **sender)
