"""The rows of share groups in the table of APIs (KIP-932): what members of groups send, and what brokers send to the
share coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.requests import authorization, handlers
from moldau.broker.requests.api import api, handler_asks, on_cluster
from moldau.broker.requests.parts import cut
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from moldau.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from moldau.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from moldau.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from moldau.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from moldau.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from moldau.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from moldau.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from moldau.protocol.messages.share_fetch import ShareFetchRequest
from moldau.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from moldau.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from moldau.replication.share.sessions import SESSION_PARTITIONS_MAX
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.requests.authorization import share_rules  # noqa: F401  the rows name it through its package
    from moldau.broker.requests.handlers import (  # noqa: F401  the rows name them through their package
        share_acknowledge,
        share_fetch,
        share_group_describe,
        share_group_heartbeat,
        share_group_offsets,
        share_group_state,
    )

STATES_SIZE: Final = 256
"""Share partitions of a part: their records are that many batches at most."""
SHARED_MAX: Final = 10_000
"""The most acknowledgements in a request of a share session: about as many records are in flight at most."""

SHARE_ROWS: Final = (
    api(
        ShareGroupHeartbeatRequest,
        broker=lambda: handlers.share_group_heartbeat.handle,
        rule=lambda: authorization.share_rules.HEARTBEAT,
        bounds={"subscribed_topic_names": ENTRIES_MAX},
    ),
    api(
        ShareGroupDescribeRequest,
        broker=lambda: handlers.share_group_describe.handle,
        rule=lambda: authorization.share_rules.DESCRIBE,
        parts=cut("group_ids", "groups", is_distinct=True),
    ),
    api(
        DescribeShareGroupOffsetsRequest,
        broker=lambda: handlers.share_group_offsets.describe,
        rule=handler_asks,
        parts=cut("groups.topics.partitions", "groups.topics.partitions"),
    ),
    api(
        AlterShareGroupOffsetsRequest,
        broker=lambda: handlers.share_group_offsets.alter,
        rule=handler_asks,
        bounds={"topics": SESSION_PARTITIONS_MAX, "topics.partitions": SESSION_PARTITIONS_MAX},
    ),
    api(
        DeleteShareGroupOffsetsRequest,
        broker=lambda: handlers.share_group_offsets.delete,
        rule=handler_asks,
        bounds={"topics": SESSION_PARTITIONS_MAX},
    ),
    api(
        ShareFetchRequest,
        broker=lambda: handlers.share_fetch.handle,
        rule=handler_asks,
        bounds={
            "topics": SESSION_PARTITIONS_MAX,
            "topics.partitions": SESSION_PARTITIONS_MAX,
            "topics.partitions.acknowledgement_batches": SHARED_MAX,
            "topics.partitions.acknowledgement_batches.acknowledge_types": SHARED_MAX,
            "forgotten_topics_data": SESSION_PARTITIONS_MAX,
            "forgotten_topics_data.partitions": SESSION_PARTITIONS_MAX,
        },
    ),
    api(
        ShareAcknowledgeRequest,
        broker=lambda: handlers.share_acknowledge.handle,
        rule=handler_asks,
        bounds={
            "topics": SESSION_PARTITIONS_MAX,
            "topics.partitions": SESSION_PARTITIONS_MAX,
            "topics.partitions.acknowledgement_batches": SHARED_MAX,
            "topics.partitions.acknowledgement_batches.acknowledge_types": SHARED_MAX,
        },
    ),
    api(
        InitializeShareGroupStateRequest,
        broker=lambda: handlers.share_group_state.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        parts=cut("topics.partitions", "results.partitions", size=STATES_SIZE),
    ),
    api(
        ReadShareGroupStateRequest,
        broker=lambda: handlers.share_group_state.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        parts=cut("topics.partitions", "results.partitions", size=STATES_SIZE),
    ),
    api(
        WriteShareGroupStateRequest,
        broker=lambda: handlers.share_group_state.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        parts=cut("topics.partitions", "results.partitions", size=STATES_SIZE),
        one_pass={"topics.partitions.state_batches": "the handler refuses a share partition with more than 10,000"},
    ),
    api(
        DeleteShareGroupStateRequest,
        broker=lambda: handlers.share_group_state.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        parts=cut("topics.partitions", "results.partitions", size=STATES_SIZE),
    ),
    api(
        ReadShareGroupStateSummaryRequest,
        broker=lambda: handlers.share_group_state.handle,
        rule=on_cluster(AclOperation.CLUSTER_ACTION),
        parts=cut("topics.partitions", "results.partitions"),
    ),
)
