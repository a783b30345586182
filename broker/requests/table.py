"""The table of the APIs that this server serves. ApiVersions and `docs/protocol-support.md` are computed from it.

A new API is one declaration in `protocol/messages/`, one handler in `broker/requests/handlers/`, one row here. An API
that the controller decides is one declaration, one handler in `kraft/controller/` and one row in
`kraft/controller/apis.py`: it needs a row here only where brokers do more than forward it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.broker.network.listener_role import ListenerRole
from moldau.broker.network.route import Route
from moldau.broker.requests import handlers
from moldau.broker.requests.api import Api, api, route
from moldau.broker.requests.produce_hook import produce_hook
from moldau.broker.requests.services import Services
from moldau.kraft.controller.apis import CONTROLLER_APIS, ControllerApi
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
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.delete_records import DeleteRecordsRequest
from moldau.protocol.messages.describe_acls import DescribeAclsRequest
from moldau.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest
from moldau.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.describe_producers import DescribeProducersRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from moldau.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from moldau.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.envelope import EnvelopeRequest
from moldau.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.join_group import JoinGroupRequest
from moldau.protocol.messages.leave_group import LeaveGroupRequest
from moldau.protocol.messages.list_config_resources import ListConfigResourcesRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.list_offsets import ListOffsetsRequest
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.offset_delete import OffsetDeleteRequest
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest
from moldau.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.messages.push_telemetry import PushTelemetryRequest
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from moldau.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from moldau.protocol.messages.vote import VoteRequest
from moldau.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

ROWS: Final = (
    api(ProduceRequest, broker=lambda: handlers.produce.handle, hook=produce_hook),
    api(FetchRequest, broker=lambda: handlers.fetch.handle, controller=lambda: handlers.quorum.handle),
    api(ListOffsetsRequest, broker=lambda: handlers.list_offsets.handle),
    api(MetadataRequest, broker=lambda: handlers.metadata.handle),
    api(OffsetCommitRequest, broker=lambda: handlers.offset_commit.handle),
    api(OffsetFetchRequest, broker=lambda: handlers.offset_fetch.handle),
    api(FindCoordinatorRequest, broker=lambda: handlers.find_coordinator.handle),
    api(JoinGroupRequest, broker=lambda: handlers.join_group.handle),
    api(HeartbeatRequest, broker=lambda: handlers.heartbeat.handle),
    api(LeaveGroupRequest, broker=lambda: handlers.leave_group.handle),
    api(SyncGroupRequest, broker=lambda: handlers.sync_group.handle),
    api(DescribeGroupsRequest, broker=lambda: handlers.describe_groups.handle),
    api(ListGroupsRequest, broker=lambda: handlers.list_groups.handle),
    api(
        SaslHandshakeRequest,
        broker=lambda: handlers.sasl_handshake.handle,
        controller=lambda: handlers.sasl_handshake.handle,
    ),
    api(
        ApiVersionsRequest,
        broker=lambda: handlers.api_versions.handle,
        controller=lambda: handlers.api_versions.handle,
        refuse_version=lambda: handlers.api_versions.unsupported_version,
    ),
    api(
        CreateTopicsRequest,
        broker=lambda: handlers.create_topics.handle,
        controller=lambda: handlers.decision.handle,
        is_forwardable=True,
    ),
    api(DeleteRecordsRequest, broker=lambda: handlers.delete_records.handle),
    api(InitProducerIdRequest, broker=lambda: handlers.init_producer_id.handle),
    api(OffsetForLeaderEpochRequest, broker=lambda: handlers.offset_for_leader_epoch.handle),
    api(AddPartitionsToTxnRequest, broker=lambda: handlers.add_partitions_to_txn.handle),
    api(AddOffsetsToTxnRequest, broker=lambda: handlers.add_offsets_to_txn.handle),
    api(EndTxnRequest, broker=lambda: handlers.end_txn.handle),
    api(WriteTxnMarkersRequest, broker=lambda: handlers.write_txn_markers.handle),
    api(TxnOffsetCommitRequest, broker=lambda: handlers.txn_offset_commit.handle),
    api(
        DescribeAclsRequest,
        broker=lambda: handlers.describe_acls.handle,
        controller=lambda: handlers.describe_acls.handle,
    ),
    api(
        DescribeConfigsRequest,
        broker=lambda: handlers.describe_configs.handle,
        controller=lambda: handlers.describe_configs.handle,
    ),
    api(
        AlterConfigsRequest,
        broker=lambda: handlers.alter_configs.handle,
        controller=lambda: handlers.alter_configs.handle,
        is_forwardable=True,
    ),
    api(AlterReplicaLogDirsRequest, broker=lambda: handlers.alter_replica_log_dirs.handle),
    api(DescribeLogDirsRequest, broker=lambda: handlers.describe_log_dirs.handle),
    api(
        CreatePartitionsRequest,
        broker=lambda: handlers.create_partitions.handle,
        controller=lambda: handlers.decision.handle,
        is_forwardable=True,
    ),
    api(
        CreateDelegationTokenRequest,
        broker=lambda: handlers.create_delegation_token.handle,
        controller=lambda: handlers.create_delegation_token.decide,
        is_forwardable=True,
    ),
    api(
        RenewDelegationTokenRequest,
        broker=lambda: handlers.renew_delegation_token.handle,
        controller=lambda: handlers.decision.handle,
        is_forwardable=True,
    ),
    api(
        ExpireDelegationTokenRequest,
        broker=lambda: handlers.expire_delegation_token.handle,
        controller=lambda: handlers.decision.handle,
        is_forwardable=True,
    ),
    api(DescribeDelegationTokenRequest, broker=lambda: handlers.describe_delegation_token.handle),
    api(
        SaslAuthenticateRequest,
        broker=lambda: handlers.sasl_authenticate.handle,
        controller=lambda: handlers.sasl_authenticate.handle,
    ),
    api(DeleteGroupsRequest, broker=lambda: handlers.delete_groups.handle),
    api(
        IncrementalAlterConfigsRequest,
        broker=lambda: handlers.incremental_alter_configs.handle,
        controller=lambda: handlers.incremental_alter_configs.handle,
        is_forwardable=True,
    ),
    api(OffsetDeleteRequest, broker=lambda: handlers.offset_delete.handle),
    api(DescribeClientQuotasRequest, broker=lambda: handlers.describe_client_quotas.handle),
    api(DescribeUserScramCredentialsRequest, broker=lambda: handlers.describe_user_scram_credentials.handle),
    api(VoteRequest, controller=lambda: handlers.quorum.handle),
    api(BeginQuorumEpochRequest, controller=lambda: handlers.quorum.handle),
    api(EndQuorumEpochRequest, controller=lambda: handlers.quorum.handle),
    api(
        DescribeQuorumRequest,
        broker=lambda: handlers.forwarded.handle,
        controller=lambda: handlers.quorum.handle,
        is_forwardable=True,
    ),
    api(EnvelopeRequest, controller=lambda: handlers.envelope.handle),
    api(FetchSnapshotRequest, controller=lambda: handlers.quorum.handle),
    api(
        DescribeClusterRequest,
        broker=lambda: handlers.describe_cluster.handle,
        controller=lambda: handlers.describe_cluster.handle,
    ),
    api(DescribeProducersRequest, broker=lambda: handlers.describe_producers.handle),
    api(
        GetTelemetrySubscriptionsRequest,
        broker=lambda: handlers.get_telemetry_subscriptions.handle,
        is_advertised=False,
    ),
    api(PushTelemetryRequest, broker=lambda: handlers.push_telemetry.handle, is_advertised=False),
    api(DescribeTransactionsRequest, broker=lambda: handlers.describe_transactions.handle),
    api(ListTransactionsRequest, broker=lambda: handlers.list_transactions.handle),
    api(ListConfigResourcesRequest, broker=lambda: handlers.list_config_resources.handle),
    api(DescribeTopicPartitionsRequest, broker=lambda: handlers.describe_topic_partitions.handle),
    api(
        AddRaftVoterRequest,
        broker=lambda: handlers.forwarded.handle,
        controller=lambda: handlers.quorum.handle,
        is_forwardable=True,
    ),
    api(
        RemoveRaftVoterRequest,
        broker=lambda: handlers.forwarded.handle,
        controller=lambda: handlers.quorum.handle,
        is_forwardable=True,
    ),
    api(UpdateRaftVoterRequest, controller=lambda: handlers.quorum.handle),
)


def decided(row: ControllerApi) -> Api:
    """The row of an API of the controller: a controller's listener passes it to the controller; a broker forwards the
    requests of clients.
    """
    return api(
        row.request,
        broker=(lambda: handlers.forwarded.handle) if row.is_for_clients else None,
        controller=lambda: handlers.decision.handle,
        is_forwardable=row.is_forwardable,
    )


def table_of(rows: Iterable[Api], decided_rows: Iterable[ControllerApi]) -> tuple[Api, ...]:
    """The rows in the order of their keys; an explicit row takes precedence over that of the controller."""
    table = {row.request: decided(row) for row in decided_rows}
    table.update((row.request, row) for row in rows)
    return tuple(sorted(table.values(), key=lambda row: row.key))


APIS: Final = table_of(ROWS, CONTROLLER_APIS.values())


def routes(
    role: ListenerRole, services: Services, apis: Iterable[Api] = APIS, *, is_guarded: bool = False
) -> dict[int, Route]:
    """The routes of a listener of this role, by API key; their handlers use `services`. `is_guarded`: an authorizer
    decides what clients may do."""
    return {row.key: route(row, role, services, is_guarded=is_guarded) for row in apis if row.role & role}
