"""The table of rules: the permissions that a client needs for each API, behind the listeners of brokers and of
controllers.

An API that a listener serves without a rule is a bug: a test finds it, and a node with an authorizer stops at the first
such request.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from moldau.broker.requests.authorization import cluster_rules, group_rules, topic_rules, transaction_rules
from moldau.broker.requests.authorization.rule import (
    Each,
    Rule,
    controller_asks,
    field_of,
    handler_asks,
    needs_cluster,
    open_to_all,
    topic,
)
from moldau.protocol.access import AclOperation

_name = field_of("name")


class RuleRow(NamedTuple):
    """The rules of one API; None where listeners of the role do not serve it."""

    broker: Rule | None = None
    controller: Rule | None = None


def _both(rule: Rule) -> RuleRow:
    return RuleRow(rule, rule)


def _decided(rule: Rule) -> RuleRow:
    """The rule of an API that the controller decides and a broker forwards."""
    return RuleRow(controller_asks, rule)


_CLUSTER_ACTION: Final = needs_cluster(AclOperation.CLUSTER_ACTION)
_ALTER: Final = needs_cluster(AclOperation.ALTER)
_DESCRIBE: Final = needs_cluster(AclOperation.DESCRIBE)
_ALTER_CONFIGS: Final = needs_cluster(AclOperation.ALTER_CONFIGS)
_DESCRIBE_CONFIGS: Final = needs_cluster(AclOperation.DESCRIBE_CONFIGS)
_OF_BROKERS: Final = RuleRow(controller=_CLUSTER_ACTION)
"""What nodes of the cluster ask of a controller."""

RULES: Final[Mapping[str, RuleRow]] = MappingProxyType(
    {
        "AddOffsetsToTxn": RuleRow(transaction_rules.add_offsets),
        "AddPartitionsToTxn": RuleRow(transaction_rules.add_partitions),
        "AddRaftVoter": _decided(_ALTER),
        "AllocateProducerIds": _OF_BROKERS,
        "AlterClientQuotas": _decided(_ALTER_CONFIGS),
        "AlterConfigs": _decided(cluster_rules.ALTER_CONFIGS),
        "AlterPartition": _OF_BROKERS,
        "AlterPartitionReassignments": _decided(_ALTER),
        "AlterReplicaLogDirs": RuleRow(
            needs_cluster(AclOperation.ALTER, cluster_rules.no_directories_altered),
        ),
        "AlterUserScramCredentials": _decided(_ALTER),
        "ApiVersions": _both(open_to_all),
        "AssignReplicasToDirs": _OF_BROKERS,
        "BeginQuorumEpoch": _OF_BROKERS,
        "BrokerHeartbeat": _OF_BROKERS,
        "BrokerRegistration": _OF_BROKERS,
        "ControllerRegistration": _OF_BROKERS,
        "CreateAcls": _decided(_ALTER),
        "CreateDelegationToken": _both(handler_asks),
        "CreatePartitions": _decided(
            Each(
                "topics",
                "results",
                lambda element: topic(AclOperation.ALTER, _name(element)),
                topic_rules.refused_partitions,
            )
        ),
        "CreateTopics": _decided(topic_rules.create_topics),
        "DeleteAcls": _decided(_ALTER),
        "DeleteGroups": RuleRow(group_rules.DELETE_GROUPS),
        "DeleteRecords": RuleRow(topic_rules.each_topic(AclOperation.DELETE, topic_rules.refused_deletion)),
        "DeleteTopics": _decided(topic_rules.delete_topics),
        "DescribeAcls": _both(_DESCRIBE),
        "DescribeClientQuotas": RuleRow(
            needs_cluster(AclOperation.DESCRIBE_CONFIGS, cluster_rules.no_quotas_described),
        ),
        "DescribeCluster": RuleRow(handler_asks, _ALTER),
        "DescribeConfigs": _both(cluster_rules.DESCRIBE_CONFIGS),
        "DescribeDelegationToken": RuleRow(handler_asks),
        "DescribeGroups": RuleRow(group_rules.DESCRIBE_GROUPS),
        "DescribeLogDirs": RuleRow(_DESCRIBE),
        "DescribeProducers": RuleRow(topic_rules.each_topic(AclOperation.READ, topic_rules.refused_producers)),
        "DescribeQuorum": _decided(_DESCRIBE),
        "DescribeTopicPartitions": RuleRow(topic_rules.describe_topic_partitions),
        "DescribeTransactions": RuleRow(transaction_rules.describe_transactions),
        "DescribeUserScramCredentials": RuleRow(
            needs_cluster(AclOperation.DESCRIBE, cluster_rules.no_credentials_described)
        ),
        "ElectLeaders": _decided(needs_cluster(AclOperation.ALTER, cluster_rules.nothing_elected)),
        "EndQuorumEpoch": _OF_BROKERS,
        "EndTxn": RuleRow(transaction_rules.end_transaction),
        "Envelope": RuleRow(controller=handler_asks),
        "ExpireDelegationToken": _both(handler_asks),
        "Fetch": RuleRow(handler_asks, _CLUSTER_ACTION),
        "FetchSnapshot": _OF_BROKERS,
        "FindCoordinator": RuleRow(group_rules.find_coordinator),
        "GetTelemetrySubscriptions": RuleRow(open_to_all),
        "Heartbeat": RuleRow(group_rules.MEMBER),
        "IncrementalAlterConfigs": RuleRow(cluster_rules.alter_loggers, cluster_rules.INCREMENTAL_ALTER_CONFIGS),
        "InitProducerId": RuleRow(transaction_rules.init_producer_id),
        "JoinGroup": RuleRow(group_rules.join_group),
        "LeaveGroup": RuleRow(group_rules.MEMBER),
        "ListConfigResources": RuleRow(_DESCRIBE_CONFIGS),
        "ListGroups": RuleRow(group_rules.list_groups),
        "ListOffsets": RuleRow(topic_rules.each_topic(AclOperation.DESCRIBE, topic_rules.refused_offsets)),
        "ListPartitionReassignments": _decided(_DESCRIBE),
        "ListTransactions": RuleRow(transaction_rules.list_transactions),
        "Metadata": RuleRow(handler_asks),
        "OffsetCommit": RuleRow(group_rules.offset_commit),
        "OffsetDelete": RuleRow(group_rules.offset_delete),
        "OffsetFetch": RuleRow(group_rules.offset_fetch),
        "OffsetForLeaderEpoch": RuleRow(topic_rules.offset_for_leader_epoch),
        "Produce": RuleRow(topic_rules.produce),
        "PushTelemetry": RuleRow(open_to_all),
        "RemoveRaftVoter": _decided(_ALTER),
        "RenewDelegationToken": _both(handler_asks),
        "SaslAuthenticate": _both(open_to_all),
        "SaslHandshake": _both(open_to_all),
        "SyncGroup": RuleRow(group_rules.sync_group),
        "TxnOffsetCommit": RuleRow(transaction_rules.commit_offsets),
        "UnregisterBroker": _decided(_ALTER),
        "UpdateFeatures": _decided(_ALTER),
        "UpdateRaftVoter": _OF_BROKERS,
        "Vote": _OF_BROKERS,
        "WriteTxnMarkers": RuleRow(transaction_rules.write_markers),
    }
)
"""By the name of the API."""
