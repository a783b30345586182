"""The table of the APIs that this server serves. ApiVersions and `docs/protocol-support.md` are computed from it.

A new API is one declaration in `protocol/messages/`, one handler in `broker/requests/handlers/`, one row here, or in
`group_rows.py` for groups and offsets. An API that the controller decides is one declaration, one handler in
`kraft/controller/` and one row in `kraft/controller/apis.py`: it needs a row here only where brokers do more than
forward it, or where its rule of authorization is more than an operation on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from moldau.broker.network.route import ListenerRole, Route
from moldau.broker.requests import authorization, handlers
from moldau.broker.requests.api import Api, Wrap, api, handler_asks, on_cluster, open_to_all, route
from moldau.broker.requests.group_rows import GROUP_ROWS
from moldau.broker.requests.long_lists import FetchParts, MetadataParts, TopicPages, too_many_topics
from moldau.broker.requests.parts import LIGHT_SIZE, RECORDS_SIZE, ListPath, Parts, cut
from moldau.broker.requests.produce_hook import produce_hook
from moldau.broker.requests.services import Services
from moldau.broker.requests.share_rows import SHARE_ROWS
from moldau.kraft.controller.apis import CONTROLLER_APIS, ENTRIES_MAX, ControllerApi
from moldau.kraft.controller.topics.new_partitions import NEW_PARTITIONS_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest
from moldau.protocol.messages.alter_configs import AlterConfigsRequest
from moldau.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest
from moldau.protocol.messages.create_topics import CreateTopicsRequest
from moldau.protocol.messages.delete_records import DeleteRecordsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.describe_acls import DescribeAclsRequest
from moldau.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest
from moldau.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.describe_producers import DescribeProducersRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from moldau.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.envelope import EnvelopeRequest
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from moldau.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.list_config_resources import ListConfigResourcesRequest
from moldau.protocol.messages.list_offsets import ListOffsetsRequest
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.messages.push_telemetry import PushTelemetryRequest
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from moldau.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from moldau.protocol.messages.vote import VoteRequest
from moldau.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from moldau.protocol.schema import response_class_of
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.requests.authorization import (  # noqa: F401  the rows name them through their package
        cluster_rules,
        group_rules,
        topic_rules,
        transaction_rules,
    )
    from moldau.broker.requests.handlers import (  # noqa: F401  the rows name them through their package
        add_offsets_to_txn,
        add_partitions_to_txn,
        alter_configs,
        alter_replica_log_dirs,
        api_versions,
        create_delegation_token,
        create_partitions,
        create_topics,
        decision,
        delete_records,
        describe_acls,
        describe_client_quotas,
        describe_cluster,
        describe_configs,
        describe_delegation_token,
        describe_log_dirs,
        describe_producers,
        describe_topic_partitions,
        describe_transactions,
        describe_user_scram_credentials,
        end_txn,
        envelope,
        expire_delegation_token,
        fetch,
        find_coordinator,
        forwarded,
        get_telemetry_subscriptions,
        incremental_alter_configs,
        init_producer_id,
        list_config_resources,
        list_offsets,
        list_transactions,
        metadata,
        offset_for_leader_epoch,
        produce,
        push_telemetry,
        quorum,
        renew_delegation_token,
        sasl_authenticate,
        sasl_handshake,
        txn_offset_commit,
        write_txn_markers,
    )

OPEN_MAX: Final = 8
"""The most parts of a request that wait for the controller, so that it answers other requests between them."""

FENCED: Final = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
ABORTABLE: Final = {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE}
"""Errors of transactions that older clients do not know, each with the one that they know."""

ROWS: Final = (
    *GROUP_ROWS,
    api(
        ProduceRequest,
        broker=lambda: handlers.produce.handle,
        rule=lambda: authorization.topic_rules.produce,
        parts=cut("topic_data.partition_data", "responses.partition_responses", size=RECORDS_SIZE),
        hook=produce_hook,
        errors_before={
            11: ABORTABLE,
            12: {ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS},
        },
    ),
    api(
        FetchRequest,
        broker=lambda: handlers.fetch.handle,
        controller=lambda: handlers.quorum.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        broker_rule=handler_asks,
        parts=FetchParts(),
    ),
    api(
        ListOffsetsRequest,
        broker=lambda: handlers.list_offsets.handle,
        rule=lambda: authorization.topic_rules.LIST_OFFSETS,
        parts=cut("topics.partitions"),
        errors_before={5: {ErrorCode.OFFSET_NOT_AVAILABLE: ErrorCode.LEADER_NOT_AVAILABLE}},
    ),
    api(
        MetadataRequest,
        broker=lambda: handlers.metadata.handle,
        rule=handler_asks,
        parts=MetadataParts((ListPath("topics", "topics"),), is_distinct=True),
    ),
    api(
        FindCoordinatorRequest,
        broker=lambda: handlers.find_coordinator.handle,
        rule=lambda: authorization.group_rules.find_coordinator,
        parts=cut("coordinator_keys", "coordinators"),
    ),
    api(
        SaslHandshakeRequest,
        broker=lambda: handlers.sasl_handshake.handle,
        controller=lambda: handlers.sasl_handshake.handle,
        rule=open_to_all,
    ),
    api(
        ApiVersionsRequest,
        broker=lambda: handlers.api_versions.handle,
        controller=lambda: handlers.api_versions.handle,
        rule=open_to_all,
        refuse_version=lambda: handlers.api_versions.unsupported_version,
        is_shared=True,
    ),
    api(
        CreateTopicsRequest,
        broker=lambda: handlers.create_topics.handle,
        controller=lambda: handlers.decision.handle,
        rule=lambda: authorization.topic_rules.create_topics,
        parts=cut("topics", open_max=OPEN_MAX, refuses=too_many_topics),
        bounds={
            "topics.assignments": NEW_PARTITIONS_MAX,
            "topics.assignments.broker_ids": ENTRIES_MAX,
            "topics.configs": ENTRIES_MAX,
        },
        is_forwardable=True,
    ),
    api(
        DeleteRecordsRequest,
        broker=lambda: handlers.delete_records.handle,
        rule=lambda: authorization.topic_rules.DELETE_RECORDS,
        parts=cut("topics.partitions"),
    ),
    api(
        InitProducerIdRequest,
        broker=lambda: handlers.init_producer_id.handle,
        rule=lambda: authorization.transaction_rules.init_producer_id,
        errors_before={4: FENCED},
    ),
    api(
        OffsetForLeaderEpochRequest,
        broker=lambda: handlers.offset_for_leader_epoch.handle,
        rule=lambda: authorization.topic_rules.OFFSET_FOR_LEADER_EPOCH,
        parts=cut("topics.partitions", size=LIGHT_SIZE),
    ),
    api(
        AddPartitionsToTxnRequest,
        broker=lambda: handlers.add_partitions_to_txn.handle,
        rule=lambda: authorization.transaction_rules.add_partitions,
        parts=Parts(
            (
                ListPath("transactions.topics.partitions", "results_by_transaction.topic_results.results_by_partition"),
                ListPath("v3_and_below_topics.partitions", "results_by_topic_v3_and_below.results_by_partition"),
            ),
            size=64,
        ),
        errors_before={2: FENCED, 5: ABORTABLE},
    ),
    api(
        AddOffsetsToTxnRequest,
        broker=lambda: handlers.add_offsets_to_txn.handle,
        rule=lambda: authorization.transaction_rules.ADD_OFFSETS,
        errors_before={2: FENCED, 4: ABORTABLE},
    ),
    api(
        EndTxnRequest,
        broker=lambda: handlers.end_txn.handle,
        rule=lambda: authorization.transaction_rules.END_TRANSACTION,
        errors_before={2: FENCED, 4: ABORTABLE},
    ),
    api(
        WriteTxnMarkersRequest,
        broker=lambda: handlers.write_txn_markers.handle,
        rule=lambda: authorization.transaction_rules.WRITE_MARKERS,
        parts=cut("markers.topics.partition_indexes", "markers.topics.partitions"),
    ),
    api(
        TxnOffsetCommitRequest,
        broker=lambda: handlers.txn_offset_commit.handle,
        rule=lambda: authorization.transaction_rules.COMMIT_OFFSETS,
        parts=cut("topics.partitions", size=RECORDS_SIZE),
        errors_before={5: {**ABORTABLE, ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}},
    ),
    api(
        DescribeAclsRequest,
        broker=lambda: handlers.describe_acls.handle,
        controller=lambda: handlers.describe_acls.handle,
        rule=on_cluster(AclOperation.DESCRIBE),
    ),
    api(
        DescribeConfigsRequest,
        broker=lambda: handlers.describe_configs.handle,
        controller=lambda: handlers.describe_configs.handle,
        rule=lambda: authorization.cluster_rules.DESCRIBE_CONFIGS,
        parts=cut("resources", "results", size=4, is_distinct=True),
        one_pass={"resources.configuration_keys": "the names become a set"},
    ),
    api(
        AlterConfigsRequest,
        broker=lambda: handlers.alter_configs.handle,
        controller=lambda: handlers.alter_configs.handle,
        rule=lambda: authorization.cluster_rules.ALTER_CONFIGS,
        parts=cut("resources", "responses", open_max=OPEN_MAX),
        bounds={"resources.configs": ENTRIES_MAX},
        is_forwardable=True,
    ),
    api(
        AlterReplicaLogDirsRequest,
        broker=lambda: handlers.alter_replica_log_dirs.handle,
        rule=on_cluster(AclOperation.ALTER),
        parts=cut("dirs.topics.partitions", "results.partitions"),
    ),
    api(
        DescribeLogDirsRequest,
        broker=lambda: handlers.describe_log_dirs.handle,
        rule=on_cluster(AclOperation.DESCRIBE),
        parts=cut("topics.partitions", "results.topics.partitions", groups_results=True),
    ),
    api(
        CreatePartitionsRequest,
        broker=lambda: handlers.create_partitions.handle,
        controller=lambda: handlers.decision.handle,
        rule=lambda: authorization.topic_rules.CREATE_PARTITIONS,
        parts=cut("topics", "results", open_max=OPEN_MAX),
        bounds={"topics.assignments": NEW_PARTITIONS_MAX, "topics.assignments.broker_ids": ENTRIES_MAX},
        is_forwardable=True,
    ),
    api(
        CreateDelegationTokenRequest,
        broker=lambda: handlers.create_delegation_token.handle,
        controller=lambda: handlers.create_delegation_token.decide,
        rule=handler_asks,
        bounds={"renewers": ENTRIES_MAX},
        is_forwardable=True,
    ),
    api(
        RenewDelegationTokenRequest,
        broker=lambda: handlers.renew_delegation_token.handle,
        controller=lambda: handlers.decision.handle,
        rule=handler_asks,
        is_forwardable=True,
    ),
    api(
        ExpireDelegationTokenRequest,
        broker=lambda: handlers.expire_delegation_token.handle,
        controller=lambda: handlers.decision.handle,
        rule=handler_asks,
        is_forwardable=True,
    ),
    api(
        DescribeDelegationTokenRequest,
        broker=lambda: handlers.describe_delegation_token.handle,
        rule=handler_asks,
        parts=cut("owners", "tokens", is_distinct=True),
    ),
    api(
        SaslAuthenticateRequest,
        broker=lambda: handlers.sasl_authenticate.handle,
        controller=lambda: handlers.sasl_authenticate.handle,
        rule=open_to_all,
    ),
    api(
        IncrementalAlterConfigsRequest,
        broker=lambda: handlers.incremental_alter_configs.handle,
        controller=lambda: handlers.incremental_alter_configs.handle,
        rule=lambda: authorization.cluster_rules.ALTER_CONFIGS,
        broker_rule=lambda: authorization.cluster_rules.alter_loggers,
        parts=cut("resources", "responses", open_max=OPEN_MAX),
        bounds={"resources.configs": ENTRIES_MAX},
        is_forwardable=True,
    ),
    api(
        DescribeClientQuotasRequest,
        broker=lambda: handlers.describe_client_quotas.handle,
        rule=on_cluster(AclOperation.DESCRIBE_CONFIGS),
        bounds={"components": ENTRIES_MAX},
    ),
    api(
        DescribeUserScramCredentialsRequest,
        broker=lambda: handlers.describe_user_scram_credentials.handle,
        rule=on_cluster(AclOperation.DESCRIBE),
        parts=cut("users", "results"),
    ),
    api(
        VoteRequest,
        controller=lambda: handlers.quorum.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        bounds={"topics": ENTRIES_MAX, "topics.partitions": ENTRIES_MAX},
    ),
    api(
        BeginQuorumEpochRequest,
        controller=lambda: handlers.quorum.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        bounds={"topics": ENTRIES_MAX, "topics.partitions": ENTRIES_MAX, "leader_endpoints": ENTRIES_MAX},
    ),
    api(
        EndQuorumEpochRequest,
        controller=lambda: handlers.quorum.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        bounds={
            "topics": ENTRIES_MAX,
            "topics.partitions": ENTRIES_MAX,
            "topics.partitions.preferred_successors": ENTRIES_MAX,
            "topics.partitions.preferred_candidates": ENTRIES_MAX,
            "leader_endpoints": ENTRIES_MAX,
        },
    ),
    api(
        DescribeQuorumRequest,
        broker=lambda: handlers.forwarded.handle,
        controller=lambda: handlers.quorum.handle,
        rule=on_cluster(AclOperation.DESCRIBE),
        bounds={"topics": ENTRIES_MAX, "topics.partitions": ENTRIES_MAX},
        is_forwardable=True,
    ),
    api(EnvelopeRequest, controller=lambda: handlers.envelope.handle, rule=handler_asks),
    api(
        FetchSnapshotRequest,
        controller=lambda: handlers.quorum.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        bounds={"topics": ENTRIES_MAX, "topics.partitions": ENTRIES_MAX},
    ),
    api(
        DescribeClusterRequest,
        broker=lambda: handlers.describe_cluster.handle,
        controller=lambda: handlers.describe_cluster.handle,
        rule=on_cluster(AclOperation.ALTER),
        broker_rule=handler_asks,
    ),
    api(
        DescribeProducersRequest,
        broker=lambda: handlers.describe_producers.handle,
        rule=lambda: authorization.topic_rules.DESCRIBE_PRODUCERS,
        parts=cut("topics.partition_indexes", "topics.partitions"),
    ),
    api(
        GetTelemetrySubscriptionsRequest,
        broker=lambda: handlers.get_telemetry_subscriptions.handle,
        rule=open_to_all,
        is_advertised=False,
    ),
    api(PushTelemetryRequest, broker=lambda: handlers.push_telemetry.handle, rule=open_to_all, is_advertised=False),
    api(
        DescribeTransactionsRequest,
        broker=lambda: handlers.describe_transactions.handle,
        rule=lambda: authorization.transaction_rules.DESCRIBE_TRANSACTIONS,
        parts=cut("transactional_ids", "transaction_states", is_distinct=True),
    ),
    api(
        ListTransactionsRequest,
        broker=lambda: handlers.list_transactions.handle,
        rule=lambda: authorization.transaction_rules.LIST_TRANSACTIONS,
        bounds={"state_filters": ENTRIES_MAX},
        one_pass={"producer_id_filters": "the ids become a set"},
    ),
    api(
        ListConfigResourcesRequest,
        broker=lambda: handlers.list_config_resources.handle,
        rule=on_cluster(AclOperation.DESCRIBE_CONFIGS),
        bounds={"resource_types": ENTRIES_MAX},
    ),
    api(
        DescribeTopicPartitionsRequest,
        broker=lambda: handlers.describe_topic_partitions.handle,
        rule=lambda: authorization.topic_rules.describe_topic_partitions,
        parts=TopicPages(),
    ),
    *SHARE_ROWS,
    api(
        AddRaftVoterRequest,
        broker=lambda: handlers.forwarded.handle,
        controller=lambda: handlers.quorum.handle,
        rule=on_cluster(AclOperation.ALTER),
        bounds={"listeners": ENTRIES_MAX},
        is_forwardable=True,
    ),
    api(
        RemoveRaftVoterRequest,
        broker=lambda: handlers.forwarded.handle,
        controller=lambda: handlers.quorum.handle,
        rule=on_cluster(AclOperation.ALTER),
        is_forwardable=True,
    ),
    api(
        UpdateRaftVoterRequest,
        controller=lambda: handlers.quorum.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        bounds={"listeners": ENTRIES_MAX},
    ),
    api(
        DeleteTopicsRequest,
        broker=lambda: handlers.forwarded.handle,
        controller=lambda: handlers.decision.handle,
        rule=lambda: authorization.topic_rules.delete_topics,
        parts=Parts((ListPath("topics", "responses"), ListPath("topic_names", "responses")), open_max=OPEN_MAX),
        is_forwardable=True,
    ),
    api(
        ElectLeadersRequest,
        broker=lambda: handlers.forwarded.handle,
        controller=lambda: handlers.decision.handle,
        rule=on_cluster(AclOperation.ALTER),
        parts=cut("topic_partitions.partitions", "replica_election_results.partition_result", open_max=OPEN_MAX),
        is_forwardable=True,
    ),
)


def decided(row: ControllerApi) -> Api:
    """The row of an API of the controller: a controller's listener passes it to the controller; a broker forwards the
    requests of clients.
    """
    lists = tuple(ListPath(*paths) for paths in row.cut)
    return api(
        row.request,
        broker=(lambda: handlers.forwarded.handle) if row.is_for_clients else None,
        controller=lambda: handlers.decision.handle,
        rule=on_cluster(row.operation),
        parts=Parts(lists, open_max=OPEN_MAX) if lists else None,
        bounds=row.bounds,
        is_forwardable=row.is_forwardable,
    )


def table_of(rows: Iterable[Api], decided_rows: Iterable[ControllerApi]) -> tuple[Api, ...]:
    """The rows in the order of their keys; an explicit row takes precedence over that of the controller."""
    table = {row.request: decided(row) for row in decided_rows}
    table.update((row.request, row) for row in rows)
    return tuple(sorted(table.values(), key=lambda row: row.key))


APIS: Final = table_of(ROWS, CONTROLLER_APIS.values())


def routes(
    role: ListenerRole,
    services: Services,
    apis: Iterable[Api] = APIS,
    *,
    is_guarded: bool = False,
    wrap: Wrap | None = None,
) -> dict[int, Route]:
    """The routes of a listener of this role, by API key; their handlers use `services`. `is_guarded`: an authorizer
    decides what clients may do. `wrap` wraps each handler."""
    return {row.key: route(row, role, services, is_guarded=is_guarded, wrap=wrap) for row in apis if row.role & role}


def responses() -> dict[str, type[object]]:
    """The class of the response of each API, by its name."""
    return {row.name: response_class_of(row.request) for row in APIS}
