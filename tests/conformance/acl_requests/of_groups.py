"""Requests about groups and transactions."""

from __future__ import annotations

from moldau.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.describe_groups import DescribeGroupsRequest
from moldau.protocol.messages.describe_transactions import DescribeTransactionsRequest
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.join_group import JoinGroupRequest
from moldau.protocol.messages.leave_group import LeaveGroupRequest
from moldau.protocol.messages.list_groups import ListGroupsRequest
from moldau.protocol.messages.list_transactions import ListTransactionsRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.conformance.acl_requests.asked import (
    CREATED,
    GROUP,
    OTHER_GROUP,
    TOPICS,
    TRANSACTION,
    UNKNOWN_PRODUCER,
    Asked,
    Ids,
    Requests,
    in_versions,
    made,
)

SHARE, NO_KEY_TYPE = 2, 3
"""Types of keys of FindCoordinator: one that version 6 brought, and one that no version has."""
PRODUCER = {"producer_id": UNKNOWN_PRODUCER, "producer_epoch": 0}


def requests(ids: Ids) -> Requests:
    yield from offsets(ids)
    yield from coordinators()
    yield from members()
    yield from administration()
    yield from transactions()


def offsets(ids: Ids) -> Requests:
    commits = [made(OffsetCommitRequestPartition, partition_index=0, committed_offset=1)]
    committed = [
        made(OffsetCommitRequestTopic, name=name, topic_id=ids.of(name), partitions=commits) for name in TOPICS
    ]
    yield from in_versions(2, 10, OffsetCommitRequest, group_id=GROUP, topics=committed)
    fetched = [made(OffsetFetchRequestTopic, name=name, partition_indexes=[0]) for name in TOPICS]
    yield from in_versions(1, 7, OffsetFetchRequest, group_id=GROUP, topics=fetched)
    yield from in_versions(2, 7, OffsetFetchRequest, group_id=GROUP, topics=None)
    named = [made(OffsetFetchRequestTopics, name=name, topic_id=ids.of(name), partition_indexes=[0]) for name in TOPICS]
    for topics in (named, None):
        groups = [made(OffsetFetchRequestGroup, group_id=group, topics=topics) for group in (GROUP, "h")]
        yield from in_versions(8, 10, OffsetFetchRequest, groups=groups)


def coordinators() -> Requests:
    yield from in_versions(0, 3, FindCoordinatorRequest, key=OTHER_GROUP, key_type=0)
    yield from in_versions(1, 3, FindCoordinatorRequest, key=OTHER_GROUP, key_type=1)
    for kind in (0, 1):
        yield from in_versions(4, 6, FindCoordinatorRequest, key_type=kind, coordinator_keys=[OTHER_GROUP])
    for kind in (SHARE, NO_KEY_TYPE, -1):
        yield from in_versions(1, 3, FindCoordinatorRequest, key=OTHER_GROUP, key_type=kind)
        keys = [OTHER_GROUP, GROUP]
        yield from in_versions(4, 6, FindCoordinatorRequest, key_type=kind, coordinator_keys=keys)


def members() -> Requests:
    wish = {"group_id": OTHER_GROUP, "member_id": "m"}
    yield from in_versions(2, 9, JoinGroupRequest, session_timeout_ms=9000, protocol_type="consumer", **wish)
    yield from in_versions(0, 5, SyncGroupRequest, generation_id=1, **wish)
    yield from in_versions(0, 4, HeartbeatRequest, generation_id=1, **wish)
    yield from in_versions(0, 5, LeaveGroupRequest, **wish)


def administration() -> Requests:
    described = [OTHER_GROUP, GROUP]
    yield from in_versions(0, 2, DescribeGroupsRequest, groups=described)
    yield from in_versions(3, 6, DescribeGroupsRequest, groups=described, include_authorized_operations=True)
    yield from in_versions(0, 5, ListGroupsRequest)
    yield from in_versions(0, 2, DeleteGroupsRequest, groups_names=[OTHER_GROUP])
    deleted = [made(OffsetDeleteRequestPartition, partition_index=0)]
    topics = [made(OffsetDeleteRequestTopic, name=name, partitions=deleted) for name in TOPICS]
    yield from in_versions(0, 0, OffsetDeleteRequest, group_id=OTHER_GROUP, topics=topics)


def transactions() -> Requests:
    for transaction in (None, TRANSACTION):
        yield from in_versions(0, 5, InitProducerIdRequest, transactional_id=transaction, transaction_timeout_ms=1000)
    added = [made(AddPartitionsToTxnTopic, name=name, partitions=[0]) for name in TOPICS]
    before_4: dict[str, object] = {f"v3_and_below_{name}": value for name, value in PRODUCER.items()}
    before_4 |= {"v3_and_below_transactional_id": TRANSACTION, "v3_and_below_topics": added}
    yield from in_versions(0, 3, AddPartitionsToTxnRequest, **before_4)
    whole = made(AddPartitionsToTxnTransaction, transactional_id=TRANSACTION, topics=added, **PRODUCER)
    yield from in_versions(4, 5, AddPartitionsToTxnRequest, transactions=[whole])
    verified = made(
        AddPartitionsToTxnTransaction, transactional_id=TRANSACTION, topics=added, verify_only=True, **PRODUCER
    )
    existing = made(
        AddPartitionsToTxnTransaction,
        transactional_id="another",
        topics=added[: len(CREATED)],
        verify_only=True,
        **PRODUCER,
    )
    yield from in_versions(4, 5, AddPartitionsToTxnRequest, transactions=[verified, existing])
    wish = {"transactional_id": TRANSACTION, **PRODUCER}
    yield from in_versions(0, 4, AddOffsetsToTxnRequest, group_id=OTHER_GROUP, **wish)
    yield from in_versions(0, 5, EndTxnRequest, committed=True, **wish)
    commits = [made(TxnOffsetCommitRequestPartition, partition_index=0, committed_offset=1)]
    committed = [made(TxnOffsetCommitRequestTopic, name=name, partitions=commits) for name in TOPICS]
    yield from in_versions(0, 5, TxnOffsetCommitRequest, group_id=OTHER_GROUP, topics=committed, **wish)
    ended = [made(WritableTxnMarkerTopic, name="orders", partition_indexes=[0])]
    marker = made(WritableTxnMarker, transaction_result=True, coordinator_epoch=0, topics=ended, **PRODUCER)
    yield Asked(made(WriteTxnMarkersRequest, markers=[marker]), 1)
    yield from in_versions(0, 0, DescribeTransactionsRequest, transactional_ids=[TRANSACTION])
    yield from in_versions(0, 1, ListTransactionsRequest)
