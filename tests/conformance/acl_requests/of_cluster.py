"""Requests about the cluster: ACLs, configurations, quotas, credentials, replicas and the quorum."""

from __future__ import annotations

from protocol.messages import alter_configs, incremental_alter_configs
from protocol.messages.add_raft_voter import AddRaftVoterRequest
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.unregister_broker import UnregisterBrokerRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.acl_requests.asked import OTHER_GROUP, TOPICS, Ids, Requests, in_versions, made

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
    yield from in_versions(0, 0, AlterPartitionReassignmentsRequest, timeout_ms=1000, topics=[])
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
